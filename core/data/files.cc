#include "core/data/files.h"

#include <algorithm>
#include <filesystem>

#include "core/base/shown.h"
#include "core/base/text.h"

namespace epl {
namespace {

namespace fs = std::filesystem;

class Files : public Reader {
 public:
  Files(std::vector<std::unique_ptr<Reader>> files, std::vector<std::string> names)
      : files_(std::move(files)), names_(std::move(names)) {
    int64_t end = 0;
    for (const auto& file : files_) ends_.push_back(end += file->samples());
  }
  const std::vector<std::pair<std::string, TensorType>>& fields() const override { return files_.front()->fields(); }
  int64_t samples() const override { return ends_.back(); }
  Status read(int64_t index, int field, void* target) const override {
    const size_t at = file_of(index);
    return files_[at]->read(index - begin_of(at), field, target);
  }
  int64_t row(int64_t index) const override {
    const size_t at = file_of(index);
    return files_[at]->row(index - begin_of(at));
  }
  std::string file(int64_t index) const override { return names_[file_of(index)]; }
  std::vector<int64_t> file_samples() const override {
    std::vector<int64_t> out;
    for (const auto& file : files_) out.push_back(file->samples());
    return out;
  }
  std::vector<ClassNames> classes() const override { return files_.front()->classes(); }
  std::vector<std::string> columns(int field) const override { return files_.front()->columns(field); }
  std::string options_alike() const override { return files_.front()->options_alike(); }

 private:
  size_t file_of(int64_t index) const {
    return static_cast<size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
  }
  int64_t begin_of(size_t file) const { return file == 0 ? 0 : ends_[file - 1]; }

  std::vector<std::unique_ptr<Reader>> files_;
  std::vector<std::string> names_;
  std::vector<int64_t> ends_;
};

}  // namespace

Result<std::vector<std::string>> matching_files(const std::string& path) {
  const fs::path given(path);
  const std::string pattern = given.filename().string();
  std::error_code failed;
  if (pattern.find_first_of("*?") == std::string::npos || fs::exists(given, failed))
    return std::vector<std::string>{path};
  const fs::path folder = given.has_parent_path() ? given.parent_path() : fs::path(".");
  std::vector<std::string> out;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (glob_match(pattern, name)) out.push_back((given.parent_path() / name).string());
  }
  if (failed)
    return Status(Code::io, cat("cannot read folder ", shown_path(folder.string()), ": ", failed.message()), path);
  if (out.empty()) return Status(Code::not_found, cat("no file is called ", shown_path(path)), path);
  std::ranges::sort(out);
  return out;
}

Result<std::unique_ptr<Reader>> join_files(std::vector<std::unique_ptr<Reader>> files,
                                           const std::vector<std::string>& names) {
  const auto fields_text = [](const Reader& reader) {
    std::string out;
    for (const auto& [name, type] : reader.fields()) out += cat(out.empty() ? "" : ", ", name, ": ", type.text());
    return out;
  };
  for (size_t i = 1; i < files.size(); ++i) {
    if (files[i]->fields() == files[0]->fields()) continue;
    return Status(Code::invalid_argument,
                  cat(names[i], " has other fields (", fields_text(*files[i]), ") than ", names[0], " (",
                      fields_text(*files[0]), "); files that are read as one have the same"),
                  names[i]);
  }
  if (files.size() == 1) return std::move(files[0]);
  return std::unique_ptr<Reader>(std::make_unique<Files>(std::move(files), names));
}

}  // namespace epl
