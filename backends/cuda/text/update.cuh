// Steps of optimizers whose states are in bf16, an element a thread: core/base/update_step.h with a float as the
// number, and the rounding of core/base/random_rounding.h.
#pragma once

#include "backends/cuda/text/random.cuh"
#include "core/base/update_step.h"

namespace epl::cuda {

struct Number {
  float value;
};
inline Number operator+(Number a, Number b) { return {a.value + b.value}; }
inline Number operator-(Number a, Number b) { return {a.value - b.value}; }
inline Number operator*(Number a, Number b) { return {a.value * b.value}; }
inline Number operator/(Number a, Number b) { return {a.value / b.value}; }
inline Number operator*(double a, Number b) { return {float(a) * b.value}; }
inline Number operator/(double a, Number b) { return {float(a) / b.value}; }
inline Number operator+(Number a, double b) { return {a.value + float(b)}; }
inline Number operator-(double a, Number b) { return {float(a) - b.value}; }
inline Number root(Number a) { return {__builtin_sqrtf(a.value)}; }

inline uint32_t rounding_bits(uint64_t key, uint32_t row, uint32_t column, float beside) {
  const uint32_t mixed = std::bit_cast<uint32_t>(beside) * 0x9E3779B1;
  return random_bits(key, uint64_t(row) << 32 | column) ^ (mixed ^ (mixed >> 16));
}
inline uint16_t bf16_at_random(float value, uint32_t draw) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t((bits >> 16) | 0x40);
  return uint16_t((bits + draw) >> 16);
}

// Where the state and the results of element t lie. A result may lie over an operand.
struct StoredState {
  const uint16_t* old;
  uint16_t* next;
};

template <class Step>
inline void rounded_step(const Step& step, long long t, const float* parameter, const float* gradient,
                         const StoredState* stored, const Number* scalars, uint32_t row, uint32_t column, uint64_t key,
                         bool held, float* parameter_new) {
  Number now{parameter[t]}, states[Step::states];
  uint32_t draws = rounding_bits(key, row, column, now.value);
  for (int k = 0; k < Step::states; ++k) states[k] = {std::bit_cast<float>(uint32_t(stored[k].old[t]) << 16)};
  if (!held) step(now, Number{gradient[t]}, states, scalars);
  parameter_new[t] = now.value;
  for (int k = 0; k < Step::states; ++k, draws >>= 16)
    stored[k].next[t] = bf16_at_random(states[k].value, draws & 0xffff);
}

}  // namespace epl::cuda
