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
std::string shown_plain(std::string_view text, size_t most = 60);

// A path, which is seldom long.
inline std::string shown_path(std::string_view path) { return shown_plain(path, 500); }

// A full message as a host gets it: UTF-8, no characters that act on a terminal but ends of lines, and of a length
// that a log takes. What is in it may be a path or a word that nobody has quoted.
std::string full_message(std::string_view text);

// The same in one line, for a log.
std::string full_line(std::string_view text);

}  // namespace epl
