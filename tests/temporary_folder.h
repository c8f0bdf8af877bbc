// Where tests write: a folder that is gone when they end, well or not. Nothing else in tests asks the system for a
// place (tests/structure/style_test.cc). What a child that is killed has written there goes with the folder of its
// parent.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace epl {

class TemporaryFolder {
 public:
  // `in_memory`: where the system has such a place, because a save waits for the disk.
  explicit TemporaryFolder(bool in_memory = false) {
    const std::filesystem::path memory = "/dev/shm";
    const bool there = in_memory && std::filesystem::is_directory(memory);
    path_ = ((there ? memory : std::filesystem::temp_directory_path()) / "epl_test_").string() + std::string(6, 'X');
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no folder can be made at " + path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (::getpid() == owner_) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  pid_t owner_ = ::getpid();  // a child of a fork leaves it alone
};

// Of the whole program, for what its tests share.
inline const TemporaryFolder& program_folder() {
  static const TemporaryFolder folder;
  return folder;
}

// A name in it that nothing has.
inline std::string fresh_folder(const std::string& name) {
  const std::string folder = program_folder() / name;
  std::filesystem::remove_all(folder);
  return folder;
}

}  // namespace epl
