// Softmax and its relatives along one row. See softmax.h.
#include "backends/cpu/kernels/softmax.h"

#include "backends/cpu/kernels/reduce_rows.simd.h"

namespace epl::cpu::EPL_SIMD {
namespace {

// The largest value if none is NaN. If one is, any result is fine: the sum of exponentials is NaN.
struct Largest {
  static constexpr float identity = -infinity;
  static HWY_INLINE V join(V a, V b) { return hn::Max(a, b); }
  static HWY_INLINE float join_one(float a, float b) { return a > b ? a : b; }
};

// exp(x - shift), each stored in y.
struct StoredExp {
  const float* x;
  float* y;
  V shift;
  HWY_INLINE V operator()(int64_t i) const {
    V e = exp(hn::Sub(hn::LoadU(f32, x + i), shift));
    hn::StoreU(e, f32, y + i);
    return e;
  }
  HWY_INLINE V operator()(int64_t i, hn::Mask<F> mask) const {
    V e = exp(hn::Sub(hn::MaskedLoad(mask, f32, x + i), shift));
    hn::BlendedStore(e, mask, f32, y + i);
    return e;
  }
};
struct ShiftedExp {
  const float* x;
  V shift;
  HWY_INLINE V operator()(int64_t i) const { return exp(hn::Sub(hn::LoadU(f32, x + i), shift)); }
  HWY_INLINE V operator()(int64_t i, hn::Mask<F> mask) const {
    return exp(hn::Sub(hn::MaskedLoad(mask, f32, x + i), shift));
  }
};
struct Products {
  const float *a, *b;
  HWY_INLINE V operator()(int64_t i) const { return hn::Mul(hn::LoadU(f32, a + i), hn::LoadU(f32, b + i)); }
  HWY_INLINE V operator()(int64_t i, hn::Mask<F> mask) const {
    return hn::Mul(hn::MaskedLoad(mask, f32, a + i), hn::MaskedLoad(mask, f32, b + i));
  }
};

// A scalar through the vector's polynomial.
float log_of(float x) { return hn::GetLane(log(set(x))); }
float exp_of(float x) { return hn::GetLane(exp(set(x))); }

void softmax(const float* x, float* y, int64_t n) {
  float largest = reduce_row<Largest>(n, Stored{x});
  float sum = reduce_row<Sum>(n, StoredExp{x, y, set(largest)});
  V scale = set(1.0f / sum);
  for_each_vector(n, [&](auto load, auto store) HWY_ATTR { store(hn::Mul(load(y), scale), y); });
}

void softmax_grad(const float* dy, const float* y, float* dx, int64_t n) {
  V dot = set(reduce_row<Sum>(n, Products{y, dy}));
  for_each_vector(n, [&](auto load, auto store) HWY_ATTR { store(hn::Mul(load(y), hn::Sub(load(dy), dot)), dx); });
}

void log_softmax(const float* x, float* y, int64_t n) {
  float largest = reduce_row<Largest>(n, Stored{x});
  V shift = set(largest), log_sum = set(log_of(reduce_row<Sum>(n, ShiftedExp{x, shift})));
  for_each_vector(n, [&](auto load, auto store) HWY_ATTR { store(hn::Sub(hn::Sub(load(x), shift), log_sum), y); });
}

void log_softmax_grad(const float* dy, const float* y, float* dx, int64_t n) {
  V sum = set(reduce_row<Sum>(n, Stored{dy}));
  for_each_vector(n, [&](auto load, auto store) HWY_ATTR { store(hn::NegMulAdd(exp(load(y)), sum, load(dy)), dx); });
}

float log_sum_exp(const float* x, int64_t n) {
  float largest = reduce_row<Largest>(n, Stored{x});
  return largest + log_of(reduce_row<Sum>(n, ShiftedExp{x, set(largest)}));
}

void cross_entropy_grad(const float* x, float lse, int64_t target, float scale, float* y, int64_t n) {
  float at_target = owns(target) ? (exp_of(x[target] - lse) - 1.0f) * scale : 0.0f;
  V shift = set(lse), factor = set(scale), least = set(0x1p-96f);
  for_each_vector(n, [&](auto load, auto store) HWY_ATTR {
    const V p = exp(hn::Sub(load(x), shift));
    store(hn::Mul(hn::IfThenZeroElse(hn::Lt(p, least), p), factor), y);
  });
  if (owns(target)) y[target] = at_target;
}

}  // namespace

const SoftmaxLoops& softmax_loops() {
  static constexpr SoftmaxLoops loops = {softmax,          softmax_grad, log_softmax,
                                         log_softmax_grad, log_sum_exp,  cross_entropy_grad};
  return loops;
}

}  // namespace epl::cpu::EPL_SIMD
