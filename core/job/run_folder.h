// The folder that a job writes to: held against a second job, and the only place that knows how its files are called.
//
//   FOLDER/checkpoints/step-00000120   checkpoints, by their step
//   FOLDER/checkpoint                  a link to the newest
//   FOLDER/best                        a link to the best
//   FOLDER/history.jsonl               what was measured (core/job/history.h)
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/folder_lock.h"
#include "core/base/status.h"

namespace epl {

// The checkpoint that a path means: it, or the newest of a run's folder. A path that is neither stays as it is.
std::string find_checkpoint(const std::string& path);

class RunFolder {
 public:
  // Makes the folder and holds it (Code::busy where another job does). One that holds a run is refused
  // (Code::invalid_argument), unless that is replaced or the checkpoint `resume` lies in it.
  static Result<std::unique_ptr<RunFolder>> take(const std::string& path, const std::string& resume, bool overwrite);
  // For the other processes of the job, of which one takes it: its names.
  static Result<std::unique_ptr<RunFolder>> share(const std::string& path);

  const std::string& path() const { return path_; }
  std::string newest() const { return path_ + "/checkpoint"; }
  std::string best() const { return path_ + "/best"; }
  std::string history() const { return path_ + "/history.jsonl"; }
  std::string step_folder(int64_t step) const;
  // Of a run that goes on; -1 where there is none.
  int64_t best_step() const { return best_; }
  // The step that the link to the best leads to, whoever has made it; -1: there is none.
  int64_t step_of_best() const;

  // What the process that took the folder writes there, by which the others see that it is theirs; it is taken away
  // when all have looked.
  Status leave_mark() const;
  bool sees_mark() const;
  void take_mark_away() const;
  // After a checkpoint was written to step_folder(step): points the links there and removes what is not kept, which is
  // all but the `keep` newest and the best.
  Status saved(int64_t step, bool best, int64_t keep);

 private:
  explicit RunFolder(const std::string& path);
  std::string mark() const { return path_ + "/checkpoints/seen-by-all"; }
  Status look(const std::string& resume, bool overwrite);
  Status point(const std::string& link, int64_t step);
  bool remove(int64_t step);

  std::string path_;
  std::unique_ptr<OwnedFolder> lock_;  // null where the file system has none
  std::vector<int64_t> own_, stale_;   // steps of this run, and those of a run that is replaced
  int64_t best_ = -1;
};

}  // namespace epl
