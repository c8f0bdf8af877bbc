// Softmax along rows: inner loops, once per processor level. Sums run in the canonical order (reduce_order.h).
#pragma once

#include <cstdint>

namespace epl::cpu {

struct SoftmaxLoops {
  // y = exp(x - max) / sum; y may be x.
  void (*softmax)(const float* x, float* y, int64_t n);
  // dx = y (dy - sum(y dy)); dx may be either operand.
  void (*softmax_grad)(const float* dy, const float* y, float* dx, int64_t n);
  // y = x - max - log(sum(exp(x - max))); y may be x.
  void (*log_softmax)(const float* x, float* y, int64_t n);
  // dx = dy - exp(y) sum(dy); dx may be either operand.
  void (*log_softmax_grad)(const float* dy, const float* y, float* dx, int64_t n);
  // log(sum(exp(x))).
  float (*log_sum_exp)(const float* x, int64_t n);
  // y = exp(x - lse) scale, and (exp(x - lse) - 1) scale at `target`; y may be x.
  void (*cross_entropy_grad)(const float* x, float lse, int64_t target, float scale, float* y, int64_t n);
};

namespace v3 {
const SoftmaxLoops& softmax_loops();
}
namespace v4 {
const SoftmaxLoops& softmax_loops();
}

}  // namespace epl::cpu
