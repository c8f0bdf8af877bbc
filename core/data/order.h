// The order of samples: a pseudo-random permutation that needs no memory, so that a position is all there is to resume.
#pragma once

#include <cstdint>

namespace epl {

// A permutation of [0, size) keyed by (seed, epoch): a Feistel network of four rounds of Philox over the next power of
// four, walked until it lands inside (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed, uint64_t epoch);
  int64_t at(int64_t position) const;

 private:
  uint64_t size_, key_;
  int half_bits_;
};

}  // namespace epl
