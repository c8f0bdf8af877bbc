#include "core/base/text.h"

#include <algorithm>
#include <cmath>

#include "core/base/shown.h"

namespace epl {
namespace {

template <class T> std::string shortest(T value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  // A number of a floating type always looks like one, so that text forms keep the type.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string number_text(double value) { return shortest(value); }
std::string number_text(float value) { return shortest(value); }

std::string grouped(int64_t value) {
  std::string digits = cat(value);
  size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

size_t acting_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  if (text.empty()) return 0;
  if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
  if (byte(0) == 0xc2) return byte(1) >= 0x80 && byte(1) < 0xa0 ? 2 : 0;  // U+0080 to U+009F
  if (byte(0) == 0xd8) return byte(1) == 0x9c ? 2 : 0;                    // U+061C
  if (byte(0) != 0xe2) return 0;
  const unsigned last = byte(2);
  if (byte(1) == 0x80) return last == 0x8e || last == 0x8f || (last >= 0xa8 && last <= 0xae) ? 3 : 0;
  return byte(1) == 0x81 && last >= 0xa6 && last <= 0xa9 ? 3 : 0;
}

void append_escaped(std::string& out, std::string_view bytes) {
  static constexpr char hex[] = "0123456789abcdef";
  if (bytes == "\n") {
    out += "\\n";
    return;
  }
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += {'\\', 'x', hex[byte >> 4], hex[byte & 15]};
  }
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t acting = acting_bytes(text.substr(i));
    if (acting > 0) {
      append_escaped(out, text.substr(i, acting));
      i += acting - 1;
      continue;
    }
    if (text[i] == '"' || text[i] == '\\') out += '\\';
    out += text[i];
  }
  return out += '"';
}

bool parse_quoted(std::string_view& text, std::string& out) {
  auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  if (text.empty() || text[0] != '"') return false;
  std::string result;
  for (size_t i = 1; i < text.size(); ++i) {
    char c = text[i];
    if (c == '"') {
      text.remove_prefix(i + 1);
      out = std::move(result);
      return true;
    }
    if (c != '\\') {
      result += c;
      continue;
    }
    if (++i >= text.size()) return false;
    if (text[i] == 'n') {
      result += '\n';
    } else if (text[i] == 'x') {
      if (i + 2 >= text.size()) return false;
      int high = digit(text[i + 1]), low = digit(text[i + 2]);
      if (high < 0 || low < 0) return false;
      result += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      result += text[i];
    }
  }
  return false;
}

size_t utf8_sequence(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  const size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // What a shorter form could say, halves of surrogate pairs, and what lies beyond U+10FFFF.
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_sequence(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

void append_utf8(std::string& out, uint32_t code_point) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code_point >> shift & 0x3f)); };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xc0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xe0 | code_point >> 12);
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xf0 | code_point >> 18);
    tail(12), tail(6), tail(0);
  }
}

std::string to_utf8(std::string_view text) {
  if (is_utf8(text)) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_sequence(text);
    out += length == 0 ? replacement_character : text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string excerpt(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return cat(text.substr(0, end), "...");
}

std::string nearest(std::string_view name, std::span<const std::string> known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    std::vector<size_t> row(candidate.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= name.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j < row.size(); ++j) {
        size_t above = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (name[i - 1] != candidate[j - 1])});
        diagonal = above;
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

bool glob_match(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t]) && pattern[p] != '*') {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string join(std::span<const std::string> items, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i) out += separator;
    out += items[i];
  }
  return out;
}

namespace {

std::string message(std::string_view text, bool one_line) {
  constexpr size_t most = 8000;
  const std::string full = to_utf8(excerpt(text, most));
  std::string out;
  for (std::string_view left = full; !left.empty();) {
    const size_t acting = acting_bytes(left);
    if (acting == 0 || (left[0] == '\n' && !one_line)) {
      out += left[0];
      left.remove_prefix(1);
    } else if (left[0] == '\t') {
      out += ' ';
      left.remove_prefix(1);
    } else {
      append_escaped(out, left.substr(0, acting));
      left.remove_prefix(acting);
    }
  }
  return out;
}

}  // namespace

std::string shown_plain(std::string_view text, size_t most) {
  std::string cut = excerpt(text, most);
  for (size_t at = 0; at < cut.size(); ++at) {
    if (acting_bytes(std::string_view(cut).substr(at)) > 0) return quoted(cut);
  }
  return cut;
}

std::string full_message(std::string_view text) { return message(text, false); }
std::string full_line(std::string_view text) { return message(text, true); }

std::vector<std::string> comma_separated(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view one = text.substr(0, comma);
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    if (!one.empty()) out.emplace_back(one);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

}  // namespace epl
