// The folder that a run writes to: checked before the first step, held against a second run, and the only place that
// knows how its files are called.
//
//   OUT/checkpoints/step-00000120   checkpoints, by their step
//   OUT/checkpoint                  a link to the newest
//   OUT/best                        a link to the best, by the validation's metric
//   OUT/trained.onnx, OUT/adapters, OUT/report.html, OUT/history.jsonl
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/api.h"

namespace epl::tools {

using FolderLock = Handle<epl_folder_lock, epl_folder_lock_destroy>;

// A checkpoint's folder from what --resume and --checkpoint take: it, or the folder of a run, whose newest it is.
std::string find_checkpoint(const std::string& path);

class OutputFolder {
 public:
  // Makes the folder and takes its lock. A folder that holds a run is refused, unless it is overwritten or `resume`
  // lies in it.
  // Of the processes of a job the one that leads does this; for the others the folder is a name.
  OutputFolder(const Engine& engine, std::string path, const std::string& resume, bool overwrite, bool leads = true);
  OutputFolder(const OutputFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string newest() const { return path_ + "/checkpoint"; }
  std::string best() const { return path_ + "/best"; }
  std::string onnx() const { return path_ + "/trained.onnx"; }
  std::string adapters() const { return path_ + "/adapters"; }
  std::string history() const { return path_ + "/history.jsonl"; }
  std::string step_folder(int64_t step) const;

  // Throws unless the files that the job will write can be written: `report` among them, and `needed_bytes` on the
  // disk.
  void check_outputs(const std::string& report, int64_t needed_bytes) const;
  // The same for the adapters, where there are any; else those of a run that is overwritten go.
  void check_adapters(bool any) const;
  // After a checkpoint was written to step_folder(step): points the links there and removes what is not kept, which is
  // all but the `keep` newest and the best.
  void saved(int64_t step, bool best, int64_t keep);

 private:
  void point(const std::string& link, int64_t step);
  bool remove(int64_t step);

  const Engine& engine_;
  std::string path_;
  FolderLock lock_;
  std::vector<int64_t> own_, stale_;  // steps of this run, and those of a run that is overwritten
  int64_t best_ = -1;
};

}  // namespace epl::tools
