#include "tools/words.h"

#include <algorithm>

namespace epl::tools {
namespace {

// Damerau's distance with adjacent swaps (optimal string alignment).
size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 100) return "";
  std::string best;
  size_t fewest = 0;
  for (const std::string& one : candidates) {
    const size_t distance = edits(word, one);
    if (3 * distance <= std::max(word.size(), one.size()) && (best.empty() || distance < fewest)) {
      best = one;
      fewest = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? "" : "; did you mean " + near + "?";
}

std::string choices(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string meant = did_you_mean(word, candidates);
  return (meant.empty() ? "." : meant) + " There are: " + listed(candidates) + ".";
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

std::string listed(const std::vector<std::string>& words, const char* last) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i)
    out += (i == 0 ? std::string() : i + 1 == words.size() ? " " + std::string(last) + " " : ", ") + words[i];
  return out;
}

}  // namespace epl::tools
