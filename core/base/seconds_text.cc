// Four units, whatever the C locale says.
#include "core/base/seconds_text.h"

#include <charconv>
#include <cmath>

#include "core/base/text.h"

namespace epl {

std::string seconds_text(double seconds) {
  if (!(std::abs(seconds) < 1e9)) return cat(number_text(seconds), " s");
  char text[64];
  const auto with = [&](double value, int digits, std::string_view unit) {
    const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits).ptr;
    return cat(std::string_view(text, static_cast<size_t>(end - text)), " ", unit);
  };
  if (seconds > 0 && seconds < 1e-6) return with(seconds * 1e9, 1, "ns");
  if (seconds >= 1) return with(seconds, 2, "s");
  return seconds >= 1e-3 ? with(seconds * 1e3, 2, "ms") : with(seconds * 1e6, 1, "us");
}

}  // namespace epl
