#include "core/backend/job_call.h"

#include <algorithm>
#include <map>

#include "core/base/hash.h"
#include "core/base/shown.h"
#include "core/base/text.h"

namespace epl {
namespace {

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

// "key" and "value" of "key: value", where the key may be in quotes.
std::pair<std::string_view, std::string_view> parts_of(std::string_view line) {
  std::string_view rest = line;
  std::string unquoted;
  if (line.starts_with('"') && !parse_quoted(rest, unquoted)) rest = line;
  const size_t colon = std::min(rest.find(": "), rest.size()) + (line.size() - rest.size());
  return {line.substr(0, colon), line.substr(std::min(colon + 2, line.size()))};
}

// What told_line was given.
std::string told_key(std::string_view told) {
  std::string text;
  std::string_view rest = told;
  return told.starts_with('"') && parse_quoted(rest, text) ? text : std::string(told);
}

std::string shown_key(std::string_view told) { return shown_plain(told_key(told), 100); }

// What the text says of a key; null where it says nothing.
const char* find_key(std::string_view text, std::string_view key, std::string_view& value) {
  while (!text.empty()) {
    const auto [other, here] = parts_of(take_line(text));
    if (other != key) continue;
    value = here;
    return here.data();
  }
  return nullptr;
}

struct Difference {
  std::string_view key, here, there;
};

// The first line that is not in both; an empty key where all are.
Difference first_difference(std::string_view here, std::string_view there) {
  for (std::string_view rest = here; !rest.empty();) {
    const auto [key, value] = parts_of(take_line(rest));
    std::string_view other = "nothing";
    if (find_key(there, key, other) == nullptr || other != value) return {key, value, other};
  }
  for (std::string_view rest = there; !rest.empty();) {
    const auto [key, value] = parts_of(take_line(rest));
    std::string_view own;
    if (find_key(here, key, own) == nullptr) return {key, "nothing", value};
  }
  return {};
}

// In quotes, once: a text of several words has them in its line already.
std::string value_text(std::string_view value) {
  if (value == "nothing") return std::string(value);
  std::string text;
  std::string_view rest = value;
  const bool has_quotes = parse_quoted(rest, text) && rest.empty();
  return quoted(excerpt(has_quotes ? std::string_view(text) : value, 100));
}

// In the words of every language: without the prefixes of C.
std::string_view in_words(std::string_view name) {
  for (const std::string_view prefix : {"epl_", "session_"}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  return name;
}

}  // namespace

std::string told_line(std::string_view key, std::string_view value) {
  const bool plain = !key.empty() && !key.starts_with('"') && key.find(": ") == std::string_view::npos &&
                     std::ranges::none_of(key, [](char c) { return static_cast<unsigned char>(c) < ' '; });
  return cat(plain ? std::string(key) : quoted(key), ": ", value, "\n");
}

void JobCall::sign() {
  Hash64 hash;
  hash.add(name.data(), name.size());
  if (lines) hash.add(lines->data(), lines->size());
  for (const auto& [key, value] : numbers) hash.add(&value, sizeof value);
  digest = hash.value();
}

std::string JobCall::text() const {
  std::string out = told_line("call", in_words(name));
  if (lines) out += *lines;
  for (const auto& [key, value] : numbers) out += told_line(key, cat(value));
  return out;
}

std::string rank_difference(int rank, std::string_view text, int other_rank, std::string_view other_text) {
  if (rank > other_rank) return rank_difference(other_rank, other_text, rank, text);
  const auto [key, here, there] = first_difference(text, other_text);
  if (key.empty()) return "";
  if (key == "call") return cat("rank ", rank, " is in ", here, ", rank ", other_rank, " in ", there);
  return cat("the processes do not do the same: ", shown_key(key), " is ", value_text(here), " at rank ", rank, " and ",
             value_text(there), " at rank ", other_rank);
}

std::vector<std::string> different_keys(std::string_view here, std::string_view there) {
  std::map<std::string_view, std::string_view> lines;
  std::vector<std::string> out;
  for (std::string_view rest = here; !rest.empty();) lines.insert(parts_of(take_line(rest)));
  for (std::string_view rest = there; !rest.empty();) {
    const auto [key, value] = parts_of(take_line(rest));
    const auto found = lines.find(key);
    if (found == lines.end() || found->second != value) out.push_back(told_key(key));
    if (found != lines.end()) lines.erase(found);
  }
  for (const auto& [key, value] : lines) out.push_back(told_key(key));
  return out;
}

std::string line_difference(std::string_view here, std::string_view there) {
  const auto [key, own, other] = first_difference(here, there);
  return key.empty() ? "" : cat("its ", shown_key(key), " is ", value_text(other), ", here it is ", value_text(own));
}

}  // namespace epl
