// Elements of 16 bits as float32 and back, by the functions of the host.
#pragma once

#include "backends/cuda/text/machine.cuh"

namespace epl {
#include "core/base/half.inc"
}  // namespace epl

namespace epl::cuda {

inline uint16_t half_of(float x) { return float_to_half(x); }
inline uint16_t half_of(double x) { return float_to_half(round_to_odd(x)); }
inline uint16_t bfloat_of(float x) { return float_to_bfloat(x); }
inline uint16_t bfloat_of(double x) { return float_to_bfloat(round_to_odd(x)); }

}  // namespace epl::cuda
