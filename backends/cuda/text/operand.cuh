// Operands of products as float32, whatever memory holds: those of 16 bits are widened as they are read. That rounds
// nothing, so a product has the bits of the same product of widened operands, which the CPU computes
// (backends/cpu/kernels/narrow_pack.h).
#pragma once

#include "backends/cuda/text/half.cuh"

namespace epl::cuda {

#ifdef __CUDACC_RTC__
inline float widened_half(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
#else
inline float widened_half(uint16_t bits) { return epl::half_to_float(bits); }
#endif

// Each is read like a pointer to float.
struct Halves {
  const uint16_t* data;
  float operator[](int64_t i) const { return widened_half(data[i]); }
  Halves operator+(int64_t i) const { return {data + i}; }
};
struct Bfloats {
  const uint16_t* data;
  float operator[](int64_t i) const { return __builtin_bit_cast(float, uint32_t(data[i]) << 16); }
  Bfloats operator+(int64_t i) const { return {data + i}; }
};

}  // namespace epl::cuda
