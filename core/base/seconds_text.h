// Times as people read them.
#pragma once

#include <string>

namespace epl {

// "1.50 s", "2.31 ms", "16.7 us", "12.5 ns".
std::string seconds_text(double seconds);

}  // namespace epl
