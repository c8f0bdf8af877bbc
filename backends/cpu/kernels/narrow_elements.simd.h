// Elements of 16 bits as float32 and back: what core/base/half.inc does, without branches, so that the compiler makes
// vectors of loops over them.
#pragma once

#include <hwy/highway.h>

#include <bit>
#include <cstdint>

namespace epl::cpu::EPL_SIMD {

// As memory holds them.
struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};

HWY_INLINE float widened(Half half) {
  const uint32_t sign = static_cast<uint32_t>(half.bits & 0x8000) << 16, rest = half.bits & 0x7fff;
  const uint32_t small = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(rest)) * 0x1p-24f);
  const uint32_t normal = (rest << 13) + (112u << 23), special = (rest << 13) | 0x7f800000u;
  const uint32_t magnitude = rest < 0x400 ? small : rest < 0x7c00 ? normal : special;
  return std::bit_cast<float>(sign | magnitude);
}
HWY_INLINE float widened(Bfloat bfloat) { return std::bit_cast<float>(static_cast<uint32_t>(bfloat.bits) << 16); }

HWY_INLINE Half narrowed_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffff;
  // Adding 2^23 rounds to an integer.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p24f + 0x1p23f) & 0xffff;
  const uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
  const uint32_t special = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
  const uint32_t rest = magnitude < 0x38800000 ? small : magnitude < 0x477ff000 ? normal : special;
  return {static_cast<uint16_t>(((bits >> 16) & 0x8000) | rest)};
}
HWY_INLINE Bfloat narrowed_bfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16, nan = (bits >> 16) | 0x40;
  return {static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded)};
}

}  // namespace epl::cpu::EPL_SIMD
