#include "core/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/base/shown.h"

namespace epl {
namespace {

Status ask(const FileHook& hook, std::string_view operation, const std::string& path) {
  return hook ? hook(operation, path) : Status();
}

std::string folder_of(const std::string& path) {
  size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status sync_folder(const std::string& folder, const FileHook& hook) {
  EPL_TRY(ask(hook, "sync", folder));
  int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return system_error("cannot open the folder", folder, errno);
  int failed = ::fsync(descriptor) != 0 ? errno : 0;
  ::close(descriptor);
  // Some file systems cannot sync folders: nothing more can be done there.
  return failed == 0 || failed == EINVAL ? Status() : system_error("cannot sync the folder", folder, failed);
}

}  // namespace

Status system_error(std::string_view doing, const std::string& path, int error_number) {
  const bool exhausted = error_number == ENOSPC || error_number == EDQUOT || error_number == EMFILE ||
                         error_number == ENFILE || error_number == EAGAIN;
  const Code code = exhausted                ? Code::exhausted
                    : error_number == ENOENT ? Code::not_found
                    : error_number == ENOMEM ? Code::out_of_memory
                                             : Code::io;
  std::string hint = error_number == ENOSPC ? "; free some space and try again" : "";
  return Status(code, cat(doing, " ", shown_path(path), ": ", std::generic_category().message(error_number), hint),
                path);
}

Result<std::unique_ptr<FileWriter>> FileWriter::create(const std::string& path, const FileHook& hook) {
  if (path.empty() || path.find('\0') != std::string::npos)
    return invalid("a path to write to that is empty or has a zero byte");
  EPL_TRY(ask(hook, "create", path));
  int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return system_error("cannot create", path, errno);
  return std::unique_ptr<FileWriter>(new FileWriter(path, descriptor, hook));
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

// In chunks, so that a call can end in between.
Status FileWriter::write(const void* data, size_t bytes) {
  constexpr size_t chunk_bytes = size_t{8} << 20;
  EPL_TRY(ask(hook_, "write", path_));
  const char* p = static_cast<const char*>(data);
  for (bool first = true; bytes > 0; first = false) {
    if (!first) EPL_TRY(ask(hook_, "write", path_));
    ssize_t written = ::write(descriptor_, p, std::min(bytes, chunk_bytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("cannot write to", path_, errno);
    p += written, bytes -= static_cast<size_t>(written);
  }
  return {};
}

Status FileWriter::finish() {
  EPL_TRY(ask(hook_, "sync", path_));
  if (::fsync(descriptor_) != 0) return system_error("cannot sync", path_, errno);
  int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0) return system_error("cannot close", path_, errno);
  return {};
}

Status rename_durably(const std::string& source, const std::string& target, const FileHook& hook) {
  EPL_TRY(ask(hook, "rename", target));
  const std::string folder = folder_of(target);  // first: nothing may fail for lack of memory after the rename
  if (::rename(source.c_str(), target.c_str()) != 0)
    return system_error(cat("cannot rename ", shown_path(source), " to"), target, errno);
  return sync_folder(folder, hook);
}

Status write_file_atomically(const std::string& path, const std::function<Status(FileWriter&)>& write,
                             const FileHook& hook) {
  const std::string beside = path + ".part";
  auto attempt = [&]() -> Status {
    EPL_ASSIGN(std::unique_ptr<FileWriter> writer, FileWriter::create(beside, hook));
    EPL_TRY(write(*writer));
    EPL_TRY(writer->finish());
    return rename_durably(beside, path, hook);
  };
  struct Leftover {  // removed unless it was renamed, also when an exception passes
    const char* path;
    ~Leftover() {
      if (path != nullptr) ::unlink(path);
    }
  } leftover{beside.c_str()};
  Status status = attempt();
  if (status.ok()) leftover.path = nullptr;
  return status;
}

bool is_folder(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Status make_folder(const std::string& path, const FileHook& hook) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    EPL_TRY(ask(hook, "folder", part));
    if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) return system_error("cannot make the folder", part, errno);
    if (slash == std::string::npos) break;
  }
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return system_error("cannot look at", path, errno);
  if (!S_ISDIR(info.st_mode))
    return Status(Code::invalid_argument, cat(shown_path(path), " exists and is not a folder"), path);
  return {};
}

Status remove_file(const std::string& path, const FileHook& hook) {
  EPL_TRY(ask(hook, "remove", path));
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_error("cannot remove", path, errno);
  return {};
}

Status remove_empty_folder(const std::string& path, const FileHook& hook) {
  EPL_TRY(ask(hook, "remove", path));
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST)
    return system_error("cannot remove", path, errno);
  return {};
}

FolderLock::FolderLock(const std::string& path)
    : descriptor_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  while (descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace epl
