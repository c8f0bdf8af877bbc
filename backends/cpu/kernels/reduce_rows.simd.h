// Reductions of contiguous values in the canonical order, for *.simd.cc files. See reduce_order.h.
#pragma once

#include "backends/cpu/kernels/reduce_order.h"
#include "backends/cpu/simd_math.h"

namespace epl::cpu::EPL_SIMD {

struct Sum {
  static constexpr float identity = 0;
  static HWY_INLINE V join(V a, V b) { return hn::Add(a, b); }
  static HWY_INLINE float join_one(float a, float b) { return a + b; }
};
struct Max {
  static constexpr float identity = -infinity;
  static HWY_INLINE V join(V a, V b) { return max_nan(a, b); }
  static HWY_INLINE float join_one(float a, float b) { return a > b || a != a ? a : b; }
};
struct Min {
  static constexpr float identity = infinity;
  static HWY_INLINE V join(V a, V b) { return min_nan(a, b); }
  static HWY_INLINE float join_one(float a, float b) { return a < b || a != a ? a : b; }
};
struct Product {
  static constexpr float identity = 1;
  static HWY_INLINE V join(V a, V b) { return hn::Mul(a, b); }
  static HWY_INLINE float join_one(float a, float b) { return a * b; }
};

// The 16 lanes as however many vectors they take.
inline constexpr int parts = reduce_lanes / lanes;
struct Lanes {
  V part[parts];
};

template <class Op> HWY_INLINE Lanes start() {
  Lanes l;
  for (V& part : l.part) part = set(Op::identity);
  return l;
}
template <class Op> HWY_INLINE float join_lanes(const Lanes& l) {
  alignas(64) float v[reduce_lanes];
  for (int p = 0; p < parts; ++p) hn::Store(l.part[p], f32, v + p * lanes);
  for (int half = reduce_lanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) v[i] = Op::join_one(v[i], v[i + half]);
  }
  return v[0];
}

// Takes values i to i + 16 of a row, or as many as there are before `end`. `value(i, mask)` gives a vector of values
// from i on; where the mask is given, lanes outside it may hold anything.
template <class Op, class Value> HWY_INLINE void take(Lanes& l, int64_t i, const Value& value) {
  for (int p = 0; p < parts; ++p) l.part[p] = Op::join(l.part[p], value(i + p * lanes));
}
template <class Op, class Value> HWY_INLINE void take_tail(Lanes& l, int64_t i, int64_t end, const Value& value) {
  for (int p = 0; p < parts; ++p) {
    int64_t left = end - i - p * lanes;
    if (left <= 0) break;
    auto mask = hn::FirstN(f32, static_cast<size_t>(left));
    l.part[p] = Op::join(l.part[p], hn::IfThenElse(mask, value(i + p * lanes, mask), set(Op::identity)));
  }
}

template <class Op, class Value> HWY_INLINE float reduce_one_segment(int64_t begin, int64_t end, const Value& value) {
  Lanes l = start<Op>();
  int64_t i = begin;
  for (; i + reduce_lanes <= end; i += reduce_lanes) take<Op>(l, i, value);
  if (i < end) take_tail<Op>(l, i, end, value);
  return join_lanes<Op>(l);
}

// Four full segments at once: their chains of additions overlap.
template <class Op, class Value, class Emit>
HWY_INLINE int64_t reduce_four_segments(int64_t begin, int64_t end, const Value& value, const Emit& emit) {
  int64_t i = begin;
  for (; i + 4 * reduce_segment <= end; i += 4 * reduce_segment) {
    Lanes a = start<Op>(), b = a, c = a, d = a;
    for (int64_t k = i; k < i + reduce_segment; k += reduce_lanes) {
      take<Op>(a, k, value);
      take<Op>(b, k + reduce_segment, value);
      take<Op>(c, k + 2 * reduce_segment, value);
      take<Op>(d, k + 3 * reduce_segment, value);
    }
    emit(join_lanes<Op>(a));
    emit(join_lanes<Op>(b));
    emit(join_lanes<Op>(c));
    emit(join_lanes<Op>(d));
  }
  return i;
}

// Every segment of a run of n values, in order.
template <class Op, class Value, class Emit>
HWY_INLINE void reduce_segments(int64_t n, const Value& value, const Emit& emit) {
  int64_t i = reduce_four_segments<Op>(0, n, value, emit);
  for (; i < n; i += reduce_segment) {
    int64_t end = i + reduce_segment < n ? i + reduce_segment : n;
    emit(reduce_one_segment<Op>(i, end, value));
  }
}

// One run of n values in the canonical order: the tree over segments grows as a binary counter.
template <class Op, class Value> HWY_INLINE float reduce_row(int64_t n, const Value& value) {
  if (n <= reduce_segment) return reduce_one_segment<Op>(0, n, value);
  float waiting[64];
  uint64_t count = 0;
  int depth = 0;
  auto push = [&](float x) {
    for (uint64_t bit = count++; bit & 1; bit >>= 1) x = Op::join_one(waiting[--depth], x);
    waiting[depth++] = x;
  };
  reduce_segments<Op>(n, value, push);
  while (depth > 1) {
    float x = waiting[--depth];
    waiting[depth - 1] = Op::join_one(waiting[depth - 1], x);
  }
  return waiting[0];
}

// Values that lie in memory.
struct Stored {
  const float* x;
  HWY_INLINE V operator()(int64_t i) const { return hn::LoadU(f32, x + i); }
  HWY_INLINE V operator()(int64_t i, hn::Mask<F> mask) const { return hn::MaskedLoad(mask, f32, x + i); }
};

// Whether element i of a row is this thread's, where several threads share a row.
HWY_INLINE bool owns(int64_t) { return true; }

// Calls f(i, load, store) for full vectors of a row and once more, masked, for the rest: load(p) reads p[i...],
// store(v, p) writes them.
template <class Body> HWY_INLINE void for_each_vector(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    body([i](const float* p) HWY_ATTR { return hn::LoadU(f32, p + i); },
         [i](V v, float* p) HWY_ATTR { hn::StoreU(v, f32, p + i); });
  }
  if (i < n) {
    auto mask = hn::FirstN(f32, static_cast<size_t>(n - i));
    body([i, mask](const float* p) HWY_ATTR { return hn::MaskedLoad(mask, f32, p + i); },
         [i, mask](V v, float* p) HWY_ATTR { hn::BlendedStore(v, mask, f32, p + i); });
  }
}

}  // namespace epl::cpu::EPL_SIMD
