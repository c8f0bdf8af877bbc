// Counter-based random numbers: those of core/base/philox.h.
#pragma once

#include "backends/cuda/text/machine.cuh"

namespace epl::cuda {

struct Draws {
  uint32_t words[4];
};
inline Draws philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  Draws c = {
      {uint32_t(counter_low), uint32_t(counter_low >> 32), uint32_t(counter_high), uint32_t(counter_high >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53) * c.words[0], p1 = uint64_t(0xCD9E8D57) * c.words[2];
    c = {{uint32_t(p1 >> 32) ^ c.words[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c.words[3] ^ k1, uint32_t(p0)}};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}
// The key of a node's draws in a step; `hash` is that of its name.
inline uint64_t random_key(uint64_t seed, uint64_t step, uint64_t hash) {
  const Draws mixed = philox(hash, seed, step);
  return uint64_t(mixed.words[1]) << 32 | mixed.words[0];
}
inline uint32_t random_bits(uint64_t key, uint64_t index) { return philox(key, index >> 2, 0).words[index & 3]; }

}  // namespace epl::cuda
