// Models of bytes by their frequencies, against which a language model is measured, and how the latter writes text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace epl::tools {

// Counts of single bytes and of pairs, smoothed: unigram by one of each, bigram towards the unigram.
class ByteCounts {
 public:
  void add(const int64_t* context, const int64_t* target, int64_t count);
  // Nats per byte of the same windows: sums to be divided by `bytes`.
  struct Loss {
    double unigram = 0, bigram = 0;
    int64_t bytes = 0;
  };
  void measure(const int64_t* context, const int64_t* target, int64_t count, Loss& loss) const;

 private:
  double unigram(int64_t byte) const;
  std::array<int64_t, 256> single_{};
  std::vector<int64_t> pairs_ = std::vector<int64_t>(256 * 256);
  std::array<int64_t, 256> first_{};
  int64_t total_ = 0;
};

// Draws a byte from scores at a temperature; `random` is in [0, 1).
int64_t draw(const float* scores, int64_t classes, double temperature, double random);

// Numbers in [0, 1) from a seed (SplitMix64).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  double next();

 private:
  uint64_t state_;
};

// Bytes as text that a terminal and a page can show: UTF-8 and line ends stay; control characters and bytes that are
// not a character become a dot.
std::string with_dots(const std::string& bytes);

}  // namespace epl::tools
