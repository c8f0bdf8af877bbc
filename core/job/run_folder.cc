#include "core/job/run_folder.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <thread>

#include "core/base/file.h"
#include "core/base/shown.h"
#include "core/runtime/checkpoint.h"

namespace epl {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view step_prefix = "step-";

bool is_checkpoint(const std::string& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder + "/manifest.epl", ignored);
}

// A run that goes on may point its link elsewhere, and remove where it led to, while it is followed.
bool leads_to_checkpoint(const std::string& link) {
  constexpr int tries = 100;
  for (int i = 0; i < tries; ++i) {
    std::error_code ignored;
    const fs::path before = fs::read_symlink(link, ignored);
    if (is_checkpoint(link)) return true;
    if (fs::read_symlink(link, ignored) == before) return false;
  }
  return false;
}

// Where a save failed or was killed before its folder became a checkpoint; `remove_checkpoint` knows what of it is
// whose.
bool is_half_saved(const std::string& folder) {
  std::error_code ignored;
  return !is_checkpoint(folder) &&
         (fs::is_regular_file(folder + "/saving.epl", ignored) || fs::is_empty(folder, ignored));
}

// -1: that is not the name of a checkpoint of a step.
int64_t step_of(const std::string& name) {
  int64_t step = 0;
  if (!name.starts_with(step_prefix)) return -1;
  const auto [stop, bad] = std::from_chars(name.data() + step_prefix.size(), name.data() + name.size(), step);
  return bad == std::errc() && stop == name.data() + name.size() ? step : -1;
}

// The steps of the folders in FOLDER/checkpoints that `counts`, ascending.
std::vector<int64_t> steps_in(const std::string& folder, bool (*counts)(const std::string&)) {
  std::vector<int64_t> steps;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure)) {
    const int64_t step = step_of(it->path().filename().string());
    if (step >= 0 && counts(it->path().string())) steps.push_back(step);
  }
  std::ranges::sort(steps);
  return steps;
}

std::string step_name(int64_t step) {
  const std::string digits = std::to_string(step);
  return std::string(step_prefix) + std::string(digits.size() < 8 ? 8 - digits.size() : 0, '0') + digits;
}

// Once links are followed; false where one of them is not there.
bool lies_in(const std::string& path, const std::string& folder) {
  std::error_code failure;
  const fs::path inside = fs::canonical(path, failure), outside = fs::canonical(folder, failure);
  return !failure && std::mismatch(outside.begin(), outside.end(), inside.begin(), inside.end()).first == outside.end();
}

std::string without_last_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

std::string find_checkpoint(const std::string& path) {
  if (is_checkpoint(path)) return path;
  if (leads_to_checkpoint(path + "/checkpoint")) return path + "/checkpoint";
  if (const auto steps = steps_in(path + "/checkpoints", is_checkpoint); !steps.empty())
    return path + "/checkpoints/" + step_name(steps.back());
  return path;
}

RunFolder::RunFolder(const std::string& path) : path_(without_last_slashes(path)) {}

std::string RunFolder::step_folder(int64_t step) const { return path_ + "/checkpoints/" + step_name(step); }

Result<std::unique_ptr<RunFolder>> RunFolder::share(const std::string& path) {
  std::unique_ptr<RunFolder> made(new RunFolder(path));
  EPL_TRY(make_folder(made->path_ + "/checkpoints"));
  return made;
}

Result<std::unique_ptr<RunFolder>> RunFolder::take(const std::string& path, const std::string& resume, bool overwrite) {
  std::unique_ptr<RunFolder> made(new RunFolder(path));
  EPL_TRY(make_folder(made->path_));
  Result<std::unique_ptr<OwnedFolder>> lock = OwnedFolder::take(made->path_);
  // Some file systems have no locks; there a second job is not noticed.
  if (!lock.ok() && lock.status().code() != Code::unsupported) return lock.status();
  if (lock.ok()) made->lock_ = std::move(*lock);
  EPL_TRY(made->look(resume, overwrite));
  return made;
}

Status RunFolder::look(const std::string& resume, bool overwrite) {
  const std::string checkpoints = path_ + "/checkpoints";
  std::error_code ignored;
  own_ = steps_in(checkpoints, is_checkpoint);
  const bool holds_run = !own_.empty() || fs::is_regular_file(history(), ignored) || is_checkpoint(newest());
  const bool goes_on = !resume.empty() && lies_in(resume, path_);
  if (holds_run && !overwrite && !goes_on) {
    return invalid(path_,
                   " holds an earlier run; go on with that one (resume), replace it (overwrite), or give "
                   "another folder")
        .at(path_);
  }
  if (fs::exists(newest(), ignored) && !is_checkpoint(newest()))
    return error(Code::io, newest(), " is in the way: it is not a checkpoint; move it, or give another folder")
        .at(newest());
  EPL_TRY(make_folder(checkpoints));
  if (!goes_on) stale_.swap(own_);
  for (const int64_t step : steps_in(checkpoints, is_half_saved)) stale_.push_back(step);
  if (goes_on && std::ranges::find(own_, step_of_best()) != own_.end()) best_ = step_of_best();
  return {};
}

int64_t RunFolder::step_of_best() const {
  std::error_code failure;
  const std::string name = fs::canonical(best(), failure).filename().string();
  return failure || !is_checkpoint(best()) ? -1 : step_of(name);
}

Status RunFolder::leave_mark() const {
  return write_file_atomically(mark(), [](FileWriter&) { return Status(); });
}

// A file system of several hosts may show a new file late.
bool RunFolder::sees_mark() const {
  constexpr int tries = 30;
  constexpr std::chrono::milliseconds pause(100);
  std::error_code ignored;
  for (int i = 0; i < tries; ++i) {
    if (fs::exists(mark(), ignored)) return true;
    std::this_thread::sleep_for(pause);
  }
  return false;
}

void RunFolder::take_mark_away() const {
  std::error_code ignored;
  fs::remove(mark(), ignored);
}

Status RunFolder::point(const std::string& link, int64_t step) {
  std::error_code failure;
  // A folder stands there where an earlier version kept its only checkpoint.
  if (fs::is_directory(fs::symlink_status(link, failure)) && is_checkpoint(link)) EPL_TRY(remove_checkpoint(link));
  const std::string beside = link + ".part";
  fs::remove(beside, failure);
  fs::create_symlink("checkpoints/" + step_name(step), beside, failure);
  if (!failure) fs::rename(beside, link, failure);
  if (!failure) return {};
  std::error_code ignored;
  fs::remove(beside, ignored);
  return error(Code::io, "cannot point ", shown_path(link), " at the new checkpoint: ", failure.message()).at(link);
}

// An empty one is not a checkpoint.
bool RunFolder::remove(int64_t step) {
  const std::string folder = step_folder(step);
  std::error_code failure;
  return remove_checkpoint(folder).ok() || (fs::is_empty(folder, failure) && fs::remove(folder, failure));
}

Status RunFolder::saved(int64_t step, bool best, int64_t keep) {
  std::erase(own_, step);
  std::erase(stale_, step);
  own_.push_back(step);
  EPL_TRY(point(newest(), step));
  if (best) {
    best_ = step;
    EPL_TRY(point(this->best(), step));
  }
  // What is replaced goes once there is something in its place. A link must not lead to what is removed.
  if (!stale_.empty() && best_ < 0) {
    std::error_code ignored;
    fs::remove(this->best(), ignored);
  }
  for (const int64_t old : stale_) remove(old);
  stale_.clear();
  std::vector<int64_t> kept;
  for (size_t i = 0; i < own_.size(); ++i) {
    const bool among_newest = own_.size() - i <= static_cast<size_t>(std::max<int64_t>(keep, 1));
    if (among_newest || own_[i] == best_ || !remove(own_[i])) kept.push_back(own_[i]);
  }
  own_ = kept;
  return {};
}

}  // namespace epl
