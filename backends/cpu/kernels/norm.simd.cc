// Layer norm and RMS norm along one row. See norm.h.
#include "backends/cpu/kernels/norm.h"

#include "backends/cpu/kernels/reduce_rows.simd.h"

namespace epl::cpu::EPL_SIMD {
namespace {

struct CentredSquare {
  const float* x;
  V mean;
  HWY_INLINE V square(V v) const {
    V d = hn::Sub(v, mean);
    return hn::Mul(d, d);
  }
  HWY_INLINE V operator()(int64_t i) const { return square(hn::LoadU(f32, x + i)); }
  HWY_INLINE V operator()(int64_t i, hn::Mask<F> mask) const { return square(hn::MaskedLoad(mask, f32, x + i)); }
};

void forward(const float* x, const float* scale, const float* bias, float epsilon, bool centred, float* y, float* mean,
             float* rstd, int64_t n) {
  float m = centred ? reduce_row<Sum>(n, Stored{x}) / static_cast<float>(n) : 0.0f;
  V shift = set(m);
  float variance = reduce_row<Sum>(n, CentredSquare{x, shift}) / static_cast<float>(n);
  float r = 1.0f / __builtin_sqrtf(variance + epsilon);
  if (mean) *mean = m;
  if (rstd) *rstd = r;
  if (!y) return;
  V factor = set(r);
  for_each_vector(n, [&](auto load, auto store) HWY_ATTR {
    V v = hn::Mul(hn::Sub(load(x), shift), factor);
    if (scale) v = hn::Mul(v, load(scale));
    if (bias) v = hn::Add(v, load(bias));
    store(v, y);
  });
}

// dy scale, and dy scale xhat.
struct Scaled {
  const float *dy, *scale;
  HWY_INLINE V operator()(int64_t i) const {
    V v = hn::LoadU(f32, dy + i);
    return scale ? hn::Mul(v, hn::LoadU(f32, scale + i)) : v;
  }
  HWY_INLINE V operator()(int64_t i, hn::Mask<F> mask) const {
    V v = hn::MaskedLoad(mask, f32, dy + i);
    return scale ? hn::Mul(v, hn::MaskedLoad(mask, f32, scale + i)) : v;
  }
};
struct ScaledNormal {
  Scaled scaled;
  const float* x;
  V mean, rstd;
  HWY_INLINE V normal(V v) const { return hn::Mul(hn::Sub(v, mean), rstd); }
  HWY_INLINE V operator()(int64_t i) const { return hn::Mul(scaled(i), normal(hn::LoadU(f32, x + i))); }
  HWY_INLINE V operator()(int64_t i, hn::Mask<F> mask) const {
    return hn::Mul(scaled(i, mask), normal(hn::MaskedLoad(mask, f32, x + i)));
  }
};

void backward(const float* dy, const float* x, const float* scale, float mean, float rstd, bool centred, float* dx,
              float* sum_scale, float* sum_bias, int64_t n) {
  Scaled scaled{dy, scale};
  ScaledNormal product{scaled, x, set(mean), set(rstd)};
  V a = hn::Zero(f32), b = hn::Zero(f32);
  if (dx) {
    if (centred) a = set(reduce_row<Sum>(n, scaled) / static_cast<float>(n));
    b = set(reduce_row<Sum>(n, product) / static_cast<float>(n));
  }
  for_each_vector(n, [&](auto load, auto store) HWY_ATTR {
    V g = load(dy), normal = product.normal(load(x));
    if (sum_scale) store(hn::MulAdd(g, normal, load(sum_scale)), sum_scale);
    if (sum_bias) store(hn::Add(load(sum_bias), g), sum_bias);
    if (dx) {
      V s = scale ? hn::Mul(g, load(scale)) : g;
      store(hn::Mul(hn::NegMulAdd(normal, b, hn::Sub(s, a)), product.rstd), dx);
    }
  });
}

void add(float* a, const float* b, int64_t n) {
  for_each_vector(n, [&](auto load, auto store) HWY_ATTR { store(hn::Add(load(a), load(b)), a); });
}

}  // namespace

const NormLoops& norm_loops() {
  static constexpr NormLoops loops = {forward, backward, add};
  return loops;
}

}  // namespace epl::cpu::EPL_SIMD
