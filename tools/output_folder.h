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
  // Of the processes of a job the one that leads does this; each of the others leaves a mark there, that it sees the
  // folder.
  OutputFolder(const Engine& engine, std::string path, const std::string& resume, bool overwrite, int64_t process = 0);
  OutputFolder(const OutputFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string newest() const { return path_ + "/checkpoint"; }
  std::string best() const { return path_ + "/best"; }
  std::string onnx() const { return path_ + "/trained.onnx"; }
  std::string adapters() const { return path_ + "/adapters"; }
  std::string history() const { return path_ + "/history.jsonl"; }
  std::string step_folder(int64_t step) const;

  // By the process that leads, once all have come: takes their marks away. What to tell where some are missing, since
  // they would write their parts of a checkpoint elsewhere; else "".
  std::string who_does_not_see_it(int64_t processes) const;
  // Throws unless the files that the job will write can be written: `report` among them, and `needed_bytes` on the
  // disk.
  void check_outputs(const std::string& report, int64_t needed_bytes) const;
  // The same for the adapters, where there are any; else those of a run that is overwritten go.
  void check_adapters(bool any) const;
  // After a checkpoint was written to step_folder(step): points the links there and removes what is not kept, which is
  // all but the `keep` newest and the best.
  void saved(int64_t step, bool best, int64_t keep);

 private:
  std::string mark(int64_t process) const;
  void point(const std::string& link, int64_t step);
  bool remove(int64_t step);

  const Engine& engine_;
  std::string path_;
  FolderLock lock_;
  std::vector<int64_t> own_, stale_;  // steps of this run, and those of a run that is overwritten
  int64_t best_ = -1;
};

}  // namespace epl::tools
