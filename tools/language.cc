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
  for (int64_t c = 0; c < classes; ++c) total += weights[static_cast<size_t>(c)] = std::exp((scores[c] - most) / temperature);
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

std::string printable(const std::string& bytes) {
  std::string out;
  for (unsigned char c : bytes) out += c == '\n' || (c >= 32 && c < 127) ? static_cast<char>(c) : '.';
  return out;
}

}  // namespace epl::tools
