// Reductions in the canonical order (backends/cpu/kernels/reduce_order.h), with the CPU's own loops.
#pragma once

#include "backends/cpu/kernels/reduce_rows.simd.h"
#include "backends/cuda/text/one_lane.cuh"

namespace epl::cuda {
using namespace epl::cpu;
using namespace epl::cpu::gpu;

// Values that a function finds, as the loops ask for them.
template <class Find> struct Found {
  Find find;
  float operator()(int64_t i) const { return find(i); }
  float operator()(int64_t i, bool is_there) const { return is_there ? find(i) : 0.0f; }
};
template <class Op, class Find> inline float reduce_found(int64_t count, Find find) {
  return reduce_one_segment<Op>(0, count, Found<Find>{find});
}

// The binary tree over `count` values, `stride` apart, in place; the result is the first.
template <class Op> inline void join_strided(float* values, int64_t count, int64_t stride) {
  for (int64_t step = 1; step < count; step *= 2)
    for (int64_t i = 0; i + step < count; i += 2 * step)
      values[i * stride] = Op::join_one(values[i * stride], values[(i + step) * stride]);
}

inline int64_t fewer(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace epl::cuda
