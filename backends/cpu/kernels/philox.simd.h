// Philox 4x32-10 (core/base/philox.h), many counters at once. For *.simd.cc files only.
#pragma once

#include <cstdint>

#include "hwy/highway.h"

namespace epl::cpu::EPL_SIMD {
namespace draws {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<uint64_t>;
using V = hn::Vec<D>;
inline constexpr D u64;
inline constexpr int blocks = hn::MaxLanes(D());  // of four draws, one to a lane
inline constexpr int chains = 2;                  // computed side by side, to hide the latency of the products
inline constexpr int at_once = 4 * blocks * chains;

// The low half of every lane, multiplied to 64 bits; high halves are ignored, so they may hold anything.
HWY_INLINE V product(V a, V b) {
  constexpr hn::Repartition<uint32_t, D> u32;
  return hn::MulEven(hn::BitCast(u32, a), hn::BitCast(u32, b));
}

// The words of blocks first, first + 1, ... (at_once of them): core/base/philox.h with a block to a lane.
inline void draw_blocks(uint64_t key, uint64_t first, uint32_t* words) {
  const V m0 = hn::Set(u64, 0xD2511F53), m1 = hn::Set(u64, 0xCD9E8D57);
  V c0[chains], c1[chains], c2[chains], c3[chains];
  for (int i = 0; i < chains; ++i) {
    c0[i] = hn::Iota(u64, first + static_cast<uint64_t>(i * blocks));
    c1[i] = hn::ShiftRight<32>(c0[i]);
    c2[i] = c3[i] = hn::Zero(u64);
  }
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const V key0 = hn::Set(u64, k0), key1 = hn::Set(u64, k1);
    for (int i = 0; i < chains; ++i) {
      V p0 = product(m0, c0[i]), p1 = product(m1, c2[i]);
      c0[i] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1[i]), key0);
      c2[i] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3[i]), key1);
      c1[i] = p1;
      c3[i] = p0;
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  const V low = hn::Set(u64, 0xffffffff);
  for (int i = 0; i < chains; ++i) {
    V first_two = hn::Or(hn::And(c0[i], low), hn::ShiftLeft<32>(c1[i]));
    V last_two = hn::Or(hn::And(c2[i], low), hn::ShiftLeft<32>(c3[i]));
    hn::StoreInterleaved2(first_two, last_two, u64, reinterpret_cast<uint64_t*>(words) + i * 2 * blocks);
  }
}

}  // namespace draws
}  // namespace epl::cpu::EPL_SIMD
