#include "tools/text.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <utility>

namespace epl::tools {

std::string with_thousands(int64_t n) {
  std::string digits = std::to_string(n);
  for (int i = static_cast<int>(digits.size()) - 3; i > (n < 0 ? 1 : 0); i -= 3)
    digits.insert(static_cast<size_t>(i), 1, ',');
  return digits;
}

std::string readable_bytes(int64_t bytes) {
  const char* const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " bytes";
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", value, units[unit]);
  return text;
}

std::string fixed(double value, int digits) {
  if (std::isnan(value)) return "nan";  // without the sign that a printer sees
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

std::string readable_seconds(double s) {
  if (s >= 1) return fixed(s, 2) + " s";
  return s >= 1e-3 ? fixed(s * 1e3, 2) + " ms" : fixed(s * 1e6, 1) + " us";
}

std::string clock_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e7) return "?";
  const int64_t s = static_cast<int64_t>(std::llround(seconds));
  char buffer[64];
  if (s >= 3600) {
    std::snprintf(buffer, sizeof buffer, "%lld:%02lld:%02lld", static_cast<long long>(s / 3600),
                  static_cast<long long>(s / 60 % 60), static_cast<long long>(s % 60));
  } else {
    std::snprintf(buffer, sizeof buffer, "%lld:%02lld", static_cast<long long>(s / 60), static_cast<long long>(s % 60));
  }
  return buffer;
}

std::string short_number(double value) {
  if (value >= 1e6) return fixed(value / 1e6, 1) + "M";
  if (value >= 1e3) return fixed(value / 1e3, 1) + "k";
  return fixed(value, value < 10 ? 1 : 0);
}

namespace {

// The code point that a text begins with and how many bytes it has; -1 and one byte where that is not UTF-8.
std::pair<int32_t, size_t> first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return {static_cast<int32_t>(first), 1};
  const size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  uint32_t point = length == 2 ? first & 0x1f : length == 3 ? first & 0x0f : first & 0x07;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {-1, 1};
    point = point << 6 | (byte(i) & 0x3f);
  }
  const bool short_form = (length == 3 && point < 0x800) || (length == 4 && point < 0x10000);
  const bool none = length == 0 || short_form || (point >= 0xd800 && point < 0xe000) || point > 0x10ffff;
  return none ? std::pair<int32_t, size_t>{-1, 1} : std::pair{static_cast<int32_t>(point), length};
}

// Controls, ends of lines that are no line feed, and marks that turn the direction in which a terminal writes.
bool acts_on_terminals(int32_t point) {
  return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x61c || point == 0x200e || point == 0x200f ||
         (point >= 0x2028 && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
}

std::string escaped(std::string_view text, bool one_line) {
  std::string out;
  while (!text.empty()) {
    const auto [point, length] = first_character(text);
    char number[12] = "\\n";
    if (point < 0) {
      out += "\xef\xbf\xbd";
    } else if (!acts_on_terminals(point) || (!one_line && (point == '\n' || point == '\t'))) {
      out += text.substr(0, length);
    } else {
      if (point != '\n')
        std::snprintf(number, sizeof number, point < 0x100 ? "\\x%02x" : "\\u%04x", static_cast<unsigned>(point));
      out += number;
    }
    text.remove_prefix(length);
  }
  return out;
}

// Where a text can be cut: not within a character.
size_t full_characters(std::string_view text, size_t at) {
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

// The end stays too: that is where a message says what to do.
std::string without_middle(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  const size_t begin = full_characters(text, most * 3 / 4), end = full_characters(text, text.size() - most / 4);
  return std::string(text.substr(0, begin)) + "..." + std::string(text.substr(end));
}

// A path may have this length, and a line of a table.
constexpr size_t longest_word = 500, longest_line = 4000;

std::string shortened(std::string_view line) {
  if (line.size() <= longest_word) return std::string(line);
  std::string out;
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    out += without_middle(line.substr(0, end), longest_word);
    const size_t next = std::min(line.find_first_not_of(' ', end), line.size());
    out += line.substr(end, next - end);
    line.remove_prefix(next);
  }
  return without_middle(out, longest_line);
}

std::string formatted(const char* format, std::va_list arguments) {
  std::va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, arguments);
  std::string out(static_cast<size_t>(std::max(length, 0)) + 1, '\0');
  std::vsnprintf(out.data(), out.size(), format, again);
  va_end(again);
  out.pop_back();
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  const std::string clean = escaped(text, false);
  std::string out;
  for (size_t begin = 0; begin < clean.size();) {
    const size_t end = std::min(clean.find('\n', begin), clean.size());
    out += shortened(std::string_view(clean).substr(begin, end - begin));
    if (end < clean.size()) out += '\n';
    begin = end + 1;
  }
  return out;
}

std::string printable_line(std::string_view text) { return shortened(escaped(text, true)); }

void say(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const std::string text = formatted(format, arguments);
  va_end(arguments);
  std::fputs(printable(text).c_str(), stdout);
}

void say_error(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::string text = formatted(format, arguments);
  va_end(arguments);
  if (text.ends_with('\n')) text.pop_back();
  std::fputs((printable_line(text) + "\n").c_str(), stderr);
}

std::string shell_word(std::string_view word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:=+@%-") ==
                                          std::string_view::npos;
  if (plain) return std::string(word);
  std::string out = "'";
  for (char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace epl::tools
