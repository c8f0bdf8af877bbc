#include "tools/output_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tools/text.h"

namespace epl::tools {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& doing, const std::string& path, int reason) {
  throw ApiError(EPL_ERROR_IO, doing + " " + path + ": " + std::strerror(reason), path);
}

void make_folders(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    struct stat info{};
    int reason = ::mkdir(part.c_str(), 0777) == 0 ? 0 : errno;
    if (reason == EEXIST) reason = ::stat(part.c_str(), &info) == 0 && S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
    if (reason != 0) refuse("cannot make the folder", part, reason);
    if (slash == std::string::npos) break;
  }
}

// Throws unless a file can be made where `path` will be; nothing is left of the attempt.
void try_file(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    refuse("cannot write", path, S_ISDIR(info.st_mode) ? EISDIR : EINVAL);
  const std::string beside = path + ".part";
  const int file = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) refuse("cannot write", path, errno);
  ::close(file);
  ::unlink(beside.c_str());
}

bool lies_in(const std::string& path, const std::string& folder) {
  std::error_code failure;
  const fs::path inside = fs::canonical(path, failure), outside = fs::canonical(folder, failure);
  if (failure) return false;
  return std::mismatch(outside.begin(), outside.end(), inside.begin(), inside.end()).first == outside.end();
}

}  // namespace

OutputFolder::OutputFolder(std::string path) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
}

void refuse_used_folder(const std::string& path) {
  throw UsageError(path + " holds an earlier run; go on with it by --resume " + path +
                   ", replace it with --overwrite, or give another folder with --out");
}

void OutputFolder::check_unused(const std::string& resume, bool overwrite) const {
  std::error_code ignored;
  if (overwrite || !fs::is_regular_file(onnx(), ignored)) return;
  if (resume.empty() || !lies_in(resume, path_)) refuse_used_folder(path_);
}

void OutputFolder::check_outputs(const std::string& report, int64_t needed_bytes) const {
  make_folders(path_ + "/checkpoints");
  try_file(path_ + "/checkpoints/new");
  for (const std::string& file : {onnx(), path_ + "/history.jsonl", report}) try_file(file);
  struct statvfs disk{};
  if (::statvfs(path_.c_str(), &disk) != 0) return;
  const auto room = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  if (room < needed_bytes) {
    throw ApiError(EPL_ERROR_IO,
                   "the disk of " + path_ + " has room for " + with_thousands(room) +
                       " bytes; a checkpoint and the trained model need " + with_thousands(needed_bytes) +
                       "; free some space, or give a folder on another disk with --out",
                   path_);
  }
}

void OutputFolder::check_adapters(bool any) const {
  const std::string files[] = {adapters() + "/adapter_model.safetensors", adapters() + "/adapter_config.json"};
  if (any) make_folders(adapters());
  std::error_code ignored;
  for (const std::string& file : files) any ? try_file(file) : static_cast<void>(fs::remove(file, ignored));
  if (!any) fs::remove(adapters(), ignored);  // where nothing else is in it
}

}  // namespace epl::tools
