#include "core/base/folder_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/base/file.h"
#include "core/base/shown.h"
#include "core/base/text.h"

namespace epl {

// Those of this process. A child of fork() shares their descriptors, and would hold the folders when we have ended: it
// closes them.
struct OwnedFolders {
  std::mutex lock;
  std::vector<OwnedFolder*> all;

  static OwnedFolders& here() {
    static OwnedFolders* one = make();  // never destroyed: a host may fork while it ends
    return *one;
  }
  void add(OwnedFolder* one) {
    const std::lock_guard hold(lock);
    all.push_back(one);
  }
  void remove(OwnedFolder* one) {
    const std::lock_guard hold(lock);
    std::erase(all, one);
  }

 private:
  static OwnedFolders* make() {
    auto made = std::make_unique<OwnedFolders>();
    ::pthread_atfork([] { here().lock.lock(); }, [] { here().lock.unlock(); },
                     [] {
                       for (OwnedFolder* one : here().all) one->let_go();
                       here().all.clear();
                       here().lock.unlock();
                     });
    return made.release();
  }
};

namespace {

// "process 123 on HOST", as the owner wrote it; a file that is being written has nothing yet.
std::string owner_in(int descriptor) {
  char text[300];
  const ssize_t bytes = ::pread(descriptor, text, sizeof text, 0);
  std::string_view line(text, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  if (line.empty() || line.back() != '\n') return "another process";
  line.remove_suffix(1);
  return shown_plain(to_utf8(line), 200);
}

std::string ourselves() {
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') return cat("process ", ::getpid());
  return cat("process ", ::getpid(), " on ", std::string_view(host));
}

bool same_file(int descriptor, const std::string& path) {
  struct stat open{}, named{};
  return ::fstat(descriptor, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

}  // namespace

// An attempt; true where the file was removed by its last owner meanwhile.
Result<bool> OwnedFolder::lock(const std::string& folder) {
  descriptor_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor_ < 0) return system_error("cannot lock the folder", folder, errno);
  int failed = 0;
  while ((failed = ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 ? errno : 0) == EINTR) {
  }
  if (failed == 0) return !same_file(descriptor_, file_);
  const std::string owner = owner_in(descriptor_);
  if (failed == EWOULDBLOCK)
    return error(Code::busy, shown_path(folder), " is in use by ", owner,
                 "; wait until it has ended, or give this one a folder of its own")
        .at(folder);
  return unsupported("the file system of ", shown_path(folder), " has no locks (",
                     std::generic_category().message(failed), ")")
      .at(folder);
}

void OwnedFolder::let_go() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

Result<std::unique_ptr<OwnedFolder>> OwnedFolder::take(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos)
    return invalid("the path of a folder is empty or has a zero byte");
  const std::string text = ourselves() + "\n";
  std::unique_ptr<OwnedFolder> made(new OwnedFolder(path + "/" + file_name));
  OwnedFolders::here().add(made.get());  // first: a child that is forked from here on lets go
  while (true) {
    EPL_ASSIGN(const bool gone, made->lock(path));
    if (!gone) break;
    made->let_go();
  }
  made->ours_ = true;
  // Who we are is for messages alone: a full disk does not matter.
  if (::ftruncate(made->descriptor_, 0) != 0 || ::pwrite(made->descriptor_, text.data(), text.size(), 0) < 0)
    return made;
  return made;
}

OwnedFolder::~OwnedFolder() {
  OwnedFolders::here().remove(this);
  if (ours_ && descriptor_ >= 0 && same_file(descriptor_, file_)) ::unlink(file_.c_str());
  let_go();
}

}  // namespace epl
