// Inner loops of reductions, once per processor level. See reduce.h.
#include "backends/cpu/kernels/reduce.h"

#include "backends/cpu/kernels/reduce_rows.simd.h"

namespace epl::cpu::EPL_SIMD {
namespace {

template <class Op> void segments(const float* x, int64_t n, float* partials) {
  reduce_segments<Op>(n, Stored{x}, [&](float value) { *partials++ = value; });
}

// Row r belongs to lane r mod 16; the lanes of a block of columns stay in the first-level cache.
template <class Op>
void columns(const float* x, const int64_t* offsets, int64_t rows, int64_t width, float* to, float* scratch) {
  for (int64_t lane = 0; lane < reduce_lanes; ++lane) {
    float* acc = scratch + lane * column_block;
    for (int64_t k = 0; k < width; k += lanes) hn::StoreU(set(Op::identity), f32, acc + k);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + offsets[r];
    if (r + 6 < rows) {  // rows of a block are far apart: the processor does not foresee them
      for (int64_t k = 0; k < width; k += 16) __builtin_prefetch(x + offsets[r + 6] + k);
    }
    float* acc = scratch + r % reduce_lanes * column_block;
    for_each_vector(width, [&](auto load, auto store) HWY_ATTR { store(Op::join(load(acc), load(row)), acc); });
  }
  for (int half = reduce_lanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) {
      float* a = scratch + lane * column_block;
      const float* b = scratch + (lane + half) * column_block;
      float* into = half == 1 ? to : a;
      for_each_vector(width, [&](auto load, auto store) HWY_ATTR { store(Op::join(load(a), load(b)), into); });
    }
  }
}

template <class Op> float join(float a, float b) { return Op::join_one(a, b); }
template <class Op> void join_rows(float* a, const float* b, int64_t width) {
  for_each_vector(width, [&](auto load, auto store) HWY_ATTR { store(Op::join(load(a), load(b)), a); });
}

template <class Op> constexpr ReduceLoops loops_of = {segments<Op>, columns<Op>, join<Op>, join_rows<Op>};

}  // namespace

const ReduceLoops& reduce_loops(Reducer op) {
  switch (op) {
    case Reducer::max:
      return loops_of<Max>;
    case Reducer::min:
      return loops_of<Min>;
    case Reducer::product:
      return loops_of<Product>;
    case Reducer::sum:
      break;
  }
  return loops_of<Sum>;
}

}  // namespace epl::cpu::EPL_SIMD
