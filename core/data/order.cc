#include "core/data/order.h"

#include <bit>

#include "core/base/philox.h"

namespace epl {

Permutation::Permutation(int64_t size, uint64_t seed, uint64_t epoch)
    : size_(static_cast<uint64_t>(size)), key_(random_key(seed, epoch, "epl.data.order")) {
  int bits = std::bit_width(size_ > 0 ? size_ - 1 : 0);
  half_bits_ = (bits + 1) / 2 > 0 ? (bits + 1) / 2 : 1;
}

int64_t Permutation::at(int64_t position) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t x = static_cast<uint64_t>(position);
  do {
    uint64_t left = x >> half_bits_, right = x & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      PhiloxBlock block = philox(key_, right, round);
      uint64_t mixed = (static_cast<uint64_t>(block[1]) << 32) | block[0];
      uint64_t next = left ^ (mixed & mask);
      left = right;
      right = next;
    }
    x = (left << half_bits_) | right;
  } while (x >= size_);
  return static_cast<int64_t>(x);
}

}  // namespace epl
