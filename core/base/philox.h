// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
// A number depends only on its key and counter, so draws do not depend on layout, order or thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace epl {

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock philox(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  PhiloxBlock c = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                   static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

// The 32 random bits of element `index`: four neighbours share a block.
constexpr uint32_t philox_bits(uint64_t key, uint64_t index) { return philox(key, index >> 2)[index & 3]; }
// Uniform in [0, 1) with 24 bits, exact in float.
constexpr float philox_uniform(uint64_t key, uint64_t index) {
  return static_cast<float>(philox_bits(key, index) >> 8) * 0x1p-24f;
}

// An attribute of random ops: they draw for the full tensor, and not for its current samples.
inline constexpr std::string_view draws_in_full = "full";

// The key of a node's draws in a step.
constexpr uint64_t random_key(uint64_t seed, uint64_t step, std::string_view node) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (char c : node) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  PhiloxBlock mixed = philox(hash, seed, step);
  return (static_cast<uint64_t>(mixed[1]) << 32) | mixed[0];
}

}  // namespace epl
