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

// Names come from files that strangers made: characters that would act on a terminal are written as \x1b. Lines and
// tabs stay.
std::string printable(std::string_view text);

// A word as a shell reads it back.
std::string shell_word(std::string_view word);

}  // namespace epl::tools
