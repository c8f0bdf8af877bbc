// Layer norm and RMS norm along rows: inner loops, once per processor level. Sums run in the canonical order.
#pragma once

#include <cstdint>

namespace epl::cpu {

struct NormLoops {
  // One row: y = (x - mean) rstd scale + bias. `centred`: with the mean taken off, which is stored. Null scale or bias:
  // none.
  void (*forward)(const float* x, const float* scale, const float* bias, float epsilon, bool centred, float* y,
                  float* mean, float* rstd, int64_t n);
  // One row's dx; adds dy xhat to sum_scale and dy to sum_bias where they are not null.
  void (*backward)(const float* dy, const float* x, const float* scale, float mean, float rstd, bool centred, float* dx,
                   float* sum_scale, float* sum_bias, int64_t n);
  // a += b over n values.
  void (*add)(float* a, const float* b, int64_t n);
};

namespace v3 {
const NormLoops& norm_loops();
}
namespace v4 {
const NormLoops& norm_loops();
}

}  // namespace epl::cpu
