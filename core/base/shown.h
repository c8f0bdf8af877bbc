// What data and users say, in a message: cut, and without control characters. Every message that repeats what is not
// ours goes through here: names of columns, cells, texts of options, names in a file.
#pragma once

#include <string>
#include <string_view>

#include "core/base/text.h"

namespace epl {

// In quotes.
inline std::string shown(std::string_view text, size_t most = 60) { return quoted(excerpt(text, most)); }

// The same without them, for lists.
inline std::string shown_plain(std::string_view text, size_t most = 60) {
  const std::string cut = excerpt(text, most);
  for (const char c : cut) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') return quoted(cut);
  }
  return cut;
}

// A path, which is seldom long.
inline std::string shown_path(std::string_view path) { return shown_plain(path, 500); }

// A whole message as a host gets it: UTF-8, no control characters but ends of lines, and of a length that a log takes.
// What is in it may be a path or a word that nobody has quoted.
inline std::string whole_message(std::string_view text) {
  constexpr size_t most = 8000;
  constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (const char c : to_utf8(excerpt(text, most))) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= ' ' && byte != 0x7f) || c == '\n') {
      out += c;
    } else if (c == '\t') {
      out += ' ';
    } else {
      out += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    }
  }
  return out;
}

}  // namespace epl
