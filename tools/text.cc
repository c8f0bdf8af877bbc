#include "tools/text.h"

#include <cmath>
#include <cstdio>

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

std::string printable(std::string_view text) {
  std::string out;
  for (size_t k = 0; k < text.size(); ++k) {
    const auto byte = static_cast<unsigned char>(text[k]);
    // U+0080 to U+009F, the controls that take two bytes.
    const bool wide = byte == 0xc2 && k + 1 < text.size() && static_cast<unsigned char>(text[k + 1]) >= 0x80 &&
                      static_cast<unsigned char>(text[k + 1]) < 0xa0;
    if ((byte >= 0x20 && byte != 0x7f && !wide) || byte == '\n' || byte == '\t') {
      out += text[k];
      continue;
    }
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\x%02x", wide ? static_cast<unsigned char>(text[++k]) : byte);
    out += escaped;
  }
  return out;
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
