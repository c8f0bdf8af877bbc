// Operands of products as float32, whatever memory holds: those of 16 bits are widened as they are read. That rounds
// nothing, so a product has the bits of the same product of widened operands, which the CPU computes
// (backends/cpu/kernels/narrow_pack.h).
#pragma once

#include "backends/cuda/text/half.cuh"

namespace epl::cuda {

// Each is read like a pointer to float.
struct Halves {
  const uint16_t* data;
  float operator[](int64_t i) const { return widened_half(data[i]); }
  Halves operator+(int64_t i) const { return {data + i}; }
};
struct Bfloats {
  const uint16_t* data;
  float operator[](int64_t i) const { return epl::bfloat_to_float(data[i]); }
  Bfloats operator+(int64_t i) const { return {data + i}; }
};

}  // namespace epl::cuda
