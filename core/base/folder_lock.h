// A folder that one owner has to itself: a second one, in this process or in another, is refused with who has it.
#pragma once

#include <memory>
#include <string>

#include "core/base/status.h"

namespace epl {

// The owner is a file in the folder, `.epl.lock`, that the system keeps locked for us and lets go with the process,
// however it ends. It says who we are. It is gone when the lock is; after a kill it stays, and means nothing.
class OwnedFolder {
 public:
  // `Code::busy`: somebody has it. `Code::unsupported`: the file system has no locks.
  static Result<std::unique_ptr<OwnedFolder>> take(const std::string& path);
  // In a child of fork() it does nothing: the folder is the parent's.
  ~OwnedFolder();
  OwnedFolder(const OwnedFolder&) = delete;
  static constexpr const char* file_name = ".epl.lock";

 private:
  explicit OwnedFolder(std::string file) : file_(std::move(file)) {}
  Result<bool> lock(const std::string& folder);
  void let_go();
  std::string file_;
  int descriptor_ = -1;  // of the file; of a child of fork() none
  bool ours_ = false;
  friend struct OwnedFolders;
};

}  // namespace epl
