// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace epl::tools {

std::string with_thousands(int64_t n);        // "1,234,567"
std::string readable_bytes(int64_t bytes);    // "12.3 MiB"
std::string readable_seconds(double s);       // "1.03 ms"
std::string clock_text(double seconds);       // "1:02:03" or "4:05"
std::string short_number(double value);       // "12.3k"
std::string fixed(double value, int digits);  // "1.2340"

// Names come from files that strangers made, and words from command lines that went wrong: what would act on a terminal
// is written as \x1b or \u202e, what is not UTF-8 as U+FFFD, and of a very long word or line its middle is left out.
// Lines and tabs stay.
std::string printable(std::string_view text);
// The same as one line, for a name or a message: ends of lines are written as \n.
std::string printable_line(std::string_view text);

// All that the tool says goes through these, as `printable` has it, but JSON (tools/json.h).
[[gnu::format(printf, 1, 2)]] void say(const char* format, ...);
// On standard error, as one line.
[[gnu::format(printf, 1, 2)]] void say_error(const char* format, ...);

// A word as a shell reads it back.
std::string shell_word(std::string_view word);

}  // namespace epl::tools
