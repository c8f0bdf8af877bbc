#include "tools/language.h"

#include <algorithm>
#include <cmath>

namespace epl::tools {

void ByteCounts::add(const int64_t* context, const int64_t* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto a = static_cast<size_t>(context[i] & 255), b = static_cast<size_t>(target[i] & 255);
    ++single_[b];
    ++first_[a];
    ++pairs_[a * 256 + b];
  }
  total_ += count;
}

double ByteCounts::unigram(int64_t byte) const {
  return static_cast<double>(single_[static_cast<size_t>(byte)] + 1) / static_cast<double>(total_ + 256);
}

void ByteCounts::measure(const int64_t* context, const int64_t* target, int64_t count, Loss& loss) const {
  for (int64_t i = 0; i < count; ++i) {
    const auto a = static_cast<size_t>(context[i] & 255), b = static_cast<size_t>(target[i] & 255);
    const double single = unigram(static_cast<int64_t>(b));
    loss.unigram -= std::log(single);
    loss.bigram -= std::log((static_cast<double>(pairs_[a * 256 + b]) + single) / (static_cast<double>(first_[a]) + 1));
  }
  loss.bytes += count;
}

int64_t draw(const float* scores, int64_t classes, double temperature, double random) {
  const float most = *std::max_element(scores, scores + classes);
  std::vector<double> weights(static_cast<size_t>(classes));
  double total = 0;
  for (int64_t c = 0; c < classes; ++c)
    total += weights[static_cast<size_t>(c)] = std::exp((scores[c] - most) / temperature);
  double left = random * total;
  for (int64_t c = 0; c < classes; ++c) {
    left -= weights[static_cast<size_t>(c)];
    if (left < 0) return c;
  }
  return classes - 1;
}

double Random::next() {
  uint64_t z = state_ += 0x9E3779B97F4A7C15;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return static_cast<double>((z ^ z >> 31) >> 11) * 0x1p-53;
}

namespace {

// The bytes of the character that `text` begins with (RFC 3629), 0 where it begins with none. Neither surrogates nor
// longer forms than needed are characters.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first < 0xf0) {
    const bool second = first == 0xe0   ? byte(1) >= 0xa0 && byte(1) < 0xc0
                        : first == 0xed ? byte(1) >= 0x80 && byte(1) < 0xa0
                                        : follows(1);
    return second && follows(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first < 0xf5) {
    const bool second = first == 0xf0   ? byte(1) >= 0x90 && byte(1) < 0xc0
                        : first == 0xf4 ? byte(1) >= 0x80 && byte(1) < 0x90
                                        : follows(1);
    return second && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string with_dots(const std::string& bytes) {
  std::string out;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const size_t length = character_bytes(rest);
    const auto first = static_cast<unsigned char>(rest[0]);
    // U+0080 to U+009F are control characters as well.
    const bool control = length == 1 ? (first < 32 && first != '\n') || first == 127
                                     : length == 2 && first == 0xc2 && static_cast<unsigned char>(rest[1]) < 0xa0;
    if (length == 0 || control) {
      out += '.';
    } else {
      out += rest.substr(0, length);
    }
    rest.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

}  // namespace epl::tools
