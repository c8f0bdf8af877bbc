#include "core/base/inside.h"

#include <filesystem>
#include <system_error>

#include "core/base/shown.h"
#include "core/base/text.h"

namespace epl {
namespace {

bool lies_in(const std::filesystem::path& folder, const std::filesystem::path& path) {
  const std::filesystem::path inside = path.lexically_relative(folder);
  return !inside.empty() && *inside.begin() != "..";
}

}  // namespace

Result<std::string> path_inside(const std::string& root, const std::string& folder, std::string_view name,
                                std::string_view what) {
  namespace fs = std::filesystem;
  const std::string around = root.empty() ? (folder.empty() ? "." : folder) : root;
  const auto refused = [&] {
    return invalid(what, " names ", shown(name, 100), ", which does not lie in the folder ",
                   root.empty() ? "of the data" : shown_plain(root, 200), "; name a file in that folder");
  };
  if (name.find('\0') != std::string_view::npos) return refused();
  if (root == "/") return name.starts_with('/') || folder.empty() ? std::string(name) : cat(folder, "/", name);
  std::error_code failed;
  const fs::path real_root = fs::canonical(around, failed);
  // What leaves the folder by its text alone is refused before anything outside is looked at.
  const fs::path text_root = fs::absolute(around, failed).lexically_normal();
  const fs::path asked = fs::path(folder.empty() ? "." : folder) / fs::path(name);
  const fs::path text = fs::absolute(asked, failed).lexically_normal();
  if (failed)
    return Status(Code::io, cat("cannot find the folder ", shown_path(around), ": ", failed.message()), around);
  const bool there = lies_in(text_root / "", text) || lies_in(real_root / "", text);
  if (!there) return refused();
  const fs::path real = fs::weakly_canonical(text, failed);
  if (failed) return asked.string();  // the reader says what is wrong with it
  if (!lies_in(real_root, real)) return refused();
  return fs::exists(real, failed) ? real.string() : asked.string();
}

}  // namespace epl
