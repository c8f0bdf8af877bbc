// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace epl::tools {

std::string with_thousands(int64_t n);          // "1,234,567"
std::string readable_bytes(int64_t bytes);      // "12.3 MiB"
std::string clock_text(double seconds);         // "1:02:03" or "4:05"
std::string short_number(double value);         // "12.3k"
std::string fixed(double value, int digits);    // "1.2340"

}  // namespace epl::tools
