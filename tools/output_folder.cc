#include "tools/output_folder.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "tools/text.h"

namespace epl::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view step_prefix = "step-";

[[noreturn]] void refuse(const std::string& doing, const std::string& path, int reason) {
  throw ApiError(EPL_ERROR_IO, doing + " " + path + ": " + std::strerror(reason), path);
}

bool is_checkpoint(const std::string& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder + "/manifest.epl", ignored);
}

// Where a save failed or was killed before its folder became a checkpoint; the library knows what of it is whose.
bool is_half_saved(const std::string& folder) {
  std::error_code ignored;
  return !is_checkpoint(folder) &&
         (fs::is_regular_file(folder + "/saving.epl", ignored) || fs::is_empty(folder, ignored));
}

// The steps of the checkpoints in OUT/checkpoints, or of the folders there that `counts` otherwise, ascending.
std::vector<int64_t> steps_in(const std::string& folder, bool (*counts)(const std::string&) = is_checkpoint) {
  std::vector<int64_t> steps;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure)) {
    const std::string name = it->path().filename().string();
    int64_t step = 0;
    if (!name.starts_with(step_prefix)) continue;
    auto [stop, bad] = std::from_chars(name.data() + step_prefix.size(), name.data() + name.size(), step);
    if (bad == std::errc() && stop == name.data() + name.size() && counts(it->path().string())) steps.push_back(step);
  }
  std::ranges::sort(steps);
  return steps;
}

std::string step_name(int64_t step) {
  std::string digits = std::to_string(step);
  return std::string(step_prefix) + std::string(digits.size() < 8 ? 8 - digits.size() : 0, '0') + digits;
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

void leave_mark(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) refuse("cannot write", path, errno);
  ::close(file);
}

bool lies_in(const std::string& path, const std::string& folder) {
  std::error_code failure;
  const fs::path inside = fs::canonical(path, failure), outside = fs::canonical(folder, failure);
  if (failure) return false;
  return std::mismatch(outside.begin(), outside.end(), inside.begin(), inside.end()).first == outside.end();
}

}  // namespace

std::string find_checkpoint(const std::string& path) {
  if (is_checkpoint(path)) return path;
  if (is_checkpoint(path + "/checkpoint")) return path + "/checkpoint";
  if (const auto steps = steps_in(path + "/checkpoints"); !steps.empty())
    return path + "/checkpoints/" + step_name(steps.back());
  return path;  // the library says what is wrong with it
}

OutputFolder::OutputFolder(const Engine& engine, std::string path, const std::string& resume, bool overwrite,
                           int64_t process)
    : engine_(engine), path_(std::move(path)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  make_folders(process == 0 ? path_ : path_ + "/checkpoints");
  if (process > 0) {
    leave_mark(mark(process));
    return;
  }
  try {
    lock_ = make<FolderLock>(epl_folder_lock_create, engine.get(), path_.data(), path_.size());
  } catch (const ApiError& e) {
    if (e.code == EPL_ERROR_BUSY)
      throw UsageError("another run is writing to this folder: " + std::string(e.what()) + " with --out");
    if (e.code != EPL_ERROR_UNSUPPORTED) throw;  // without locks a second run is not noticed
  }
  std::error_code ignored;
  own_ = steps_in(path_ + "/checkpoints");
  const bool holds_run = !own_.empty() || fs::is_regular_file(onnx(), ignored) ||
                         fs::is_regular_file(history(), ignored) || is_checkpoint(newest());
  const bool goes_on = !resume.empty() && lies_in(resume, path_);
  if (holds_run && !overwrite && !goes_on) {
    throw UsageError(path_ + " holds an earlier run; go on with it by --resume " + path_ +
                     ", replace it with --overwrite, or give another folder with --out");
  }
  if (!goes_on) stale_.swap(own_);
  for (int64_t step : steps_in(path_ + "/checkpoints", is_half_saved)) stale_.push_back(step);
  if (goes_on && is_checkpoint(best())) {
    const std::string name = fs::canonical(best(), ignored).filename().string();
    for (int64_t step : own_) {
      if (step_name(step) == name) best_ = step;
    }
  }
}

std::string OutputFolder::mark(int64_t process) const {
  return path_ + "/checkpoints/process-" + std::to_string(process);
}

std::string OutputFolder::who_does_not_see_it(int64_t processes) const {
  constexpr int tries = 30;  // a file system of several hosts may show a new file late
  std::string missing;
  for (int i = 0; i < tries; ++i) {
    missing.clear();
    for (int64_t process = 1; process < processes; ++process) {
      if (::access(mark(process).c_str(), F_OK) != 0)
        missing += (missing.empty() ? "" : ", ") + std::to_string(process);
    }
    if (missing.empty()) break;
    ::poll(nullptr, 0, 100);
  }
  for (int64_t process = 1; process < processes; ++process) ::unlink(mark(process).c_str());
  if (missing.empty()) return "";
  const bool one = missing.find(',') == std::string::npos;
  return (one ? "process " : "processes ") + missing + (one ? " does" : " do") + " not see the folder " + path_ +
         " of process 0; all write checkpoints there: give --out a folder that all of them see under one name";
}

std::string OutputFolder::step_folder(int64_t step) const { return path_ + "/checkpoints/" + step_name(step); }

void OutputFolder::check_outputs(const std::string& report, int64_t needed_bytes) const {
  std::error_code ignored;
  if (fs::exists(newest(), ignored) && !is_checkpoint(newest())) {
    throw ApiError(EPL_ERROR_IO,
                   newest() + " is in the way: it is not a checkpoint; move it, or give another folder with --out",
                   newest());
  }
  make_folders(path_ + "/checkpoints");
  try_file(path_ + "/checkpoints/new");
  for (const std::string& file : {onnx(), history(), report}) try_file(file);
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

void OutputFolder::point(const std::string& link, int64_t step) {
  std::error_code failure;
  // A folder stands there where an earlier version kept its only checkpoint.
  if (fs::is_directory(fs::symlink_status(link, failure)) && is_checkpoint(link))
    check(epl_checkpoint_remove(engine_.get(), link.data(), link.size()));
  const std::string beside = link + ".part";
  fs::remove(beside, failure);
  fs::create_symlink("checkpoints/" + step_name(step), beside, failure);
  if (!failure) fs::rename(beside, link, failure);
  if (!failure) return;
  std::error_code ignored;
  fs::remove(beside, ignored);
  throw ApiError(EPL_ERROR_IO, "cannot point " + link + " at the new checkpoint: " + failure.message(), link);
}

bool OutputFolder::remove(int64_t step) {
  const std::string folder = step_folder(step);
  epl_error* error = epl_checkpoint_remove(engine_.get(), folder.data(), folder.size());
  const bool gone = error == nullptr;
  epl_error_destroy(error);
  return gone || ::rmdir(folder.c_str()) == 0;  // an empty one is not a checkpoint
}

void OutputFolder::saved(int64_t step, bool best, int64_t keep) {
  std::erase(own_, step);
  std::erase(stale_, step);
  own_.push_back(step);
  point(newest(), step);
  if (best) {
    best_ = step;
    point(this->best(), step);
  }
  // What is replaced goes once there is something in its place. A link must not lead to what is removed.
  if (!stale_.empty() && best_ < 0) {
    std::error_code ignored;
    fs::remove(this->best(), ignored);
  }
  for (int64_t old : stale_) remove(old);
  stale_.clear();
  std::vector<int64_t> kept;
  for (size_t i = 0; i < own_.size(); ++i) {
    const bool among_newest = own_.size() - i <= static_cast<size_t>(std::max<int64_t>(keep, 1));
    if (among_newest || own_[i] == best_ || !remove(own_[i])) kept.push_back(own_[i]);
  }
  own_ = kept;
}

}  // namespace epl::tools
