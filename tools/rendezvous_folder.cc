#include "tools/rendezvous_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tools/api.h"
#include "tools/clock.h"

namespace epl::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* lock_name = "lock";

[[noreturn]] void refuse(const std::string& doing, const std::string& path) {
  throw ApiError(EPL_ERROR_IO, doing + " " + path + ": " + std::strerror(errno), path);
}

bool is_private(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::getuid() &&
         (info.st_mode & 077) == 0;
}

// What others could have put there is not trusted.
void make_private(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) refuse("cannot make", path);
  if (!is_private(path)) throw ApiError(EPL_ERROR_IO, path + " is not a folder of this user alone; remove it", path);
}

bool try_lock(int file, int kind) {
  while (::flock(file, kind) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

bool same_file(int file, const std::string& path) {
  struct stat open{}, there{};
  return ::fstat(file, &open) == 0 && ::stat(path.c_str(), &there) == 0 && open.st_ino == there.st_ino &&
         open.st_dev == there.st_dev;
}

void remove_all_but_lock(const std::string& path) {
  std::error_code ignored;
  for (fs::directory_iterator it(path, ignored), end; !ignored && it != end; it.increment(ignored)) {
    if (it->path().filename() != lock_name) fs::remove_all(it->path(), ignored);
  }
}

// The lock's file goes last: until then who comes waits for it, and sees then that it is another one.
void remove_folder(const std::string& path) {
  remove_all_but_lock(path);
  ::unlink((path + "/" + lock_name).c_str());
  ::rmdir(path.c_str());
}

// Folders of jobs whose processes are all gone.
void remove_left_over(const std::string& own, const std::string& kin) {
  std::error_code ignored;
  for (fs::directory_iterator it(fs::path(own).parent_path(), ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    const std::string path = it->path().string();
    if (path == own || !path.starts_with(kin) || !is_private(path)) continue;
    const int lock = ::open((path + "/" + lock_name).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (lock < 0) continue;
    if (try_lock(lock, LOCK_EX | LOCK_NB)) remove_folder(path);
    ::close(lock);
  }
}

}  // namespace

RendezvousFolder::RendezvousFolder(std::string path, const std::string& kin) : path_(std::move(path)) {
  remove_left_over(path_, kin);
  const std::string file = path_ + "/" + lock_name;
  for (;;) {
    make_private(path_);
    lock_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock_ < 0 && errno != ENOENT) refuse("cannot make", file);
    if (lock_ < 0) continue;  // it went in this moment
    // Nobody else is here: what lies here is of a job that has ended.
    if (try_lock(lock_, LOCK_EX | LOCK_NB) && same_file(lock_, file)) remove_all_but_lock(path_);
    if (!try_lock(lock_, LOCK_SH)) refuse("cannot lock", file);
    if (same_file(lock_, file)) return;
    ::close(lock_);
  }
}

RendezvousFolder::~RendezvousFolder() {
  if (lock_ < 0) return;
  if (try_lock(lock_, LOCK_EX | LOCK_NB)) remove_folder(path_);
  ::close(lock_);
}

SecretText RendezvousFolder::secret(bool leads, double seconds) const {
  const std::string path = path_ + "/secret", draft = path + ".part";
  const auto read = [&]() -> SecretText {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return {};
    std::string text(256, '\0');
    const ssize_t got = ::read(file, text.data(), text.size());
    ::close(file);
    if (got < 0) refuse("cannot read", path);
    text.resize(static_cast<size_t>(got));
    return SecretText(std::move(text));
  };
  SecretText known = read();
  if (leads && known.empty()) {
    known = drawn_secret();
    const int file = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    const bool wrote = file >= 0 && ::write(file, known.data(), known.size()) == static_cast<ssize_t>(known.size());
    if (file >= 0) ::close(file);
    if (!wrote || ::rename(draft.c_str(), path.c_str()) != 0) refuse("cannot write", path);
  }
  const double end = steady_seconds() + seconds;
  while (known.empty()) {
    if (steady_seconds() > end) {
      throw ApiError(EPL_ERROR_DEADLINE_EXCEEDED,
                     "process 0 has not come to " + path_ + ", where it leaves a secret for the others; give all of " +
                         "them EPL_SECRET where they do not share this folder",
                     path_);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    known = read();
  }
  return known;
}

}  // namespace epl::tools
