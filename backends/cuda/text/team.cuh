// Rows whose 16 lanes (backends/cpu/kernels/reduce_order.h) are 16 threads: what the CPU's loops over a row are made
// of. A thread reads and writes the elements of its lane alone, so that a result may lie over an operand.
#pragma once

#include "backends/cuda/text/reduce.cuh"

namespace epl::cpu::gpu {

inline int lane_of_team() { return int(threadIdx.x % 16); }
inline unsigned threads_of_team() { return 0xffffu << (threadIdx.x & 16); }

// Whether this thread is the one that an element belongs to.
inline bool team_owns(int64_t i) { return i % 16 == lane_of_team(); }

template <class Op> inline float team_join(float own) {
  for (int half = 8; half > 0; half /= 2) own = Op::join_one(own, __shfl_down_sync(threads_of_team(), own, half, 16));
  return __shfl_sync(threads_of_team(), own, 0, 16);
}
template <class Op, class Value> inline float team_reduce_segment(int64_t begin, int64_t end, const Value& value) {
  float own = Op::identity;
#pragma unroll 8
  for (int64_t i = begin + lane_of_team(); i < end; i += 16) own = Op::join(own, value(i));
  return team_join<Op>(own);
}
// As reduce_row; every thread has the result.
template <class Op, class Value> inline float team_reduce_row(int64_t n, const Value& value) {
  if (n <= reduce_segment) return team_reduce_segment<Op>(0, n, value);
  float waiting[64];
  int64_t count = 0;
  int depth = 0;
  for (int64_t i = 0; i < n; i += reduce_segment) {
    float x = team_reduce_segment<Op>(i, i + reduce_segment < n ? i + reduce_segment : n, value);
    for (int64_t bit = count++; bit & 1; bit >>= 1) x = Op::join_one(waiting[--depth], x);
    waiting[depth++] = x;
  }
  while (depth > 1) {
    const float x = waiting[--depth];
    waiting[depth - 1] = Op::join_one(waiting[depth - 1], x);
  }
  return waiting[0];
}
template <class Body> inline void team_for_each_vector(int64_t n, const Body& body) {
  for (int64_t i = lane_of_team(); i < n; i += 16)
    body([i](const float* p) { return p[i]; }, [i](float v, float* p) { p[i] = v; });
}

}  // namespace epl::cpu::gpu
