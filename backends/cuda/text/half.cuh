// Elements of 16 bits as float32 and back, with the bits of the host's functions. The device has an instruction for
// each way of f16; which NaN there is, the host's functions say.
#pragma once

#include "backends/cuda/text/machine.cuh"

namespace epl {
#include "core/base/half.inc"
}  // namespace epl

namespace epl::cuda {

#ifdef __CUDACC_RTC__
inline float widened_half(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  const uint32_t rest = bits & 0x7fff;
  return rest > 0x7c00 ? std::bit_cast<float>(uint32_t(bits & 0x8000) << 16 | 0x7f800000 | (rest & 1023) << 13) : value;
}
inline uint16_t half_of(float x) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return x != x ? uint16_t(std::bit_cast<uint32_t>(x) >> 16 & 0x8000 | 0x7e00) : bits;
}
#else
inline float widened_half(uint16_t bits) { return half_to_float(bits); }
inline uint16_t half_of(float x) { return float_to_half(x); }
#endif
inline uint16_t half_of(double x) { return half_of(round_to_odd(x)); }
inline uint16_t bfloat_of(float x) { return float_to_bfloat(x); }
inline uint16_t bfloat_of(double x) { return float_to_bfloat(round_to_odd(x)); }

}  // namespace epl::cuda
