// Building and reading the small texts of messages and text forms, without the C locale.
#pragma once

#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace epl {

// Shortest text that reads back as the same number; "inf", "-inf", "nan" for the others.
std::string number_text(double value);
std::string number_text(float value);
// `12345678` as "12,345,678".
std::string grouped(int64_t value);
// How many bytes at the start of a text act on what shows it instead of being shown: a control character, an end of a
// line, a mark that turns the direction of writing. 0: none.
size_t acting_bytes(std::string_view text);
// Of these, "\n" or "\xc2\x9b".
void append_escaped(std::string& out, std::string_view bytes);
// "a b" as "\"a b\"" with \" \\ and all such bytes escaped; `parse_quoted` undoes it.
std::string quoted(std::string_view text);
// Of a std::string, whose own namespace has a `quoted` as well, in <iomanip>: these are nearer.
inline std::string quoted(const std::string& text) { return quoted(std::string_view(text)); }
inline std::string quoted(std::string& text) { return quoted(std::string_view(text)); }
// Reads a quoted text at the start of `text`, removes it from there; false if there is none.
bool parse_quoted(std::string_view& text, std::string& out);
// UTF-8 (RFC 3629). How many bytes the character at the start of `text` takes; 0 where it is none.
size_t utf8_sequence(std::string_view text);
bool is_utf8(std::string_view text);
void append_utf8(std::string& out, uint32_t code_point);
// The same text, with U+FFFD for each byte that is not part of a character.
inline constexpr std::string_view replacement_character = "\xef\xbf\xbd";
std::string to_utf8(std::string_view text);
// For messages: at most `max_bytes` of a text, cut between characters and then followed by "...".
std::string excerpt(std::string_view text, size_t max_bytes);
// The known name closest to `name` by edit distance, or empty when none is near. For "did you mean".
std::string nearest(std::string_view name, std::span<const std::string> known);
// Shell-style glob: `*` any run, `?` any one character.
bool glob_match(std::string_view pattern, std::string_view text);

namespace text_detail {
inline void append(std::string& out, std::string_view s) { out += s; }
inline void append(std::string& out, const char* s) { out += s; }
inline void append(std::string& out, char c) { out += c; }
inline void append(std::string& out, bool b) { out += b ? "true" : "false"; }
inline void append(std::string& out, double v) { out += number_text(v); }
inline void append(std::string& out, float v) { out += number_text(v); }
template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>)
void append(std::string& out, T v) {
  char buffer[24];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, v).ptr;
  out.append(buffer, end);
}
template <class T> void append(std::string& out, const std::vector<T>& items) {
  out += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i) out += ',';
    append(out, items[i]);
  }
  out += ']';
}
}  // namespace text_detail

// Concatenates anything printable: strings, numbers, vectors as "[1,2]".
template <class... Args> std::string cat(const Args&... args) {
  std::string out;
  (text_detail::append(out, args), ...);
  return out;
}

std::string join(std::span<const std::string> items, std::string_view separator);
// The items of "a, b", without the blanks around them and without empty ones.
std::vector<std::string> comma_separated(std::string_view text);

}  // namespace epl
