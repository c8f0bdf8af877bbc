// Samples of a batch or of data that follow one another.
#pragma once

#include <algorithm>
#include <cstdint>

namespace epl {

// Samples [first, first + count) of a batch.
struct SampleRange {
  int64_t first = 0, count = 0;
  int64_t end() const { return first + count; }
  // The smallest range that has both.
  SampleRange with(const SampleRange& other) const {
    if (count == 0 || other.count == 0) return count == 0 ? other : *this;
    const int64_t begin = std::min(first, other.first);
    return {begin, std::max(end(), other.end()) - begin};
  }
  friend bool operator==(const SampleRange&, const SampleRange&) = default;
};

}  // namespace epl
