#include "core/base/suggestion.h"

#include <algorithm>

#include "core/base/shown.h"

namespace epl {
namespace {

bool same_letters(std::string_view a, std::string_view b) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(a, b, {}, small, small);
}

// Another case of the letters comes first, then typing errors, then a part of a name (cross_entropy of
// softmax_cross_entropy).
std::string probably(std::string_view name, std::span<const std::string> known) {
  if (name.empty() || name.size() > 200) return "";
  for (const std::string& one : known) {
    if (same_letters(one, name)) return one;
  }
  const std::string near = nearest(name, known);
  if (!near.empty() || name.size() < 4) return near;
  for (const std::string& one : known) {
    if (one.find(name) != std::string::npos) return one;
  }
  return "";
}

}  // namespace

std::string did_you_mean(std::string_view name, std::span<const std::string> known) {
  const std::string meant = probably(name, known);
  return meant.empty() ? "" : cat("; did you mean ", shown_plain(meant, 200), "?");
}

std::string choices(std::string_view name, std::span<const std::string> known) {
  if (known.empty()) return "; there are none";
  const std::string meant = did_you_mean(name, known);
  return cat(meant.empty() ? "." : meant, " There are: ", short_list(known), ".");
}

std::string short_list(std::span<const std::string> names) {
  constexpr size_t max_names = 30, max_bytes = 1200;
  std::vector<std::string> listed;
  size_t bytes = 0;
  for (const std::string& one : names.first(std::min(max_names, names.size()))) {
    listed.push_back(one.empty() ? "\"\"" : shown_plain(one));
    bytes += listed.back().size();
    if (bytes > max_bytes) break;
  }
  return cat(join(listed, ", "),
             names.size() > listed.size() ? cat(" and ", names.size() - listed.size(), " more") : "");
}

}  // namespace epl
