#include "backends/cpu/kernels/adam.h"

#include "backends/cpu/simd_math.h"

namespace epl::cpu::EPL_SIMD {
namespace {

// One vector of elements; no multiply-add, as in the op's expression.
struct Step {
  V decay, keep, mean_share, square_keep, square_share, spread, epsilon, rate;
  bool decays, shrinks;

  explicit Step(const AdamNumbers& n)
      : decay(set(n.decay)),
        keep(set(n.keep)),
        mean_share(set(n.mean_share)),
        square_keep(set(n.square_keep)),
        square_share(set(n.square_share)),
        spread(set(n.spread)),
        epsilon(set(n.epsilon)),
        rate(set(n.rate)),
        decays(n.decay != 0),
        shrinks(n.keep != 1) {}

  HWY_INLINE void operator()(V& w, V g, V& m, V& v) const {
    if (decays) g = hn::Add(g, hn::Mul(decay, w));
    if (shrinks) w = hn::Mul(w, keep);
    m = hn::Add(m, hn::Mul(mean_share, hn::Sub(g, m)));
    v = hn::Add(hn::Mul(square_keep, v), hn::Mul(square_share, hn::Mul(g, g)));
    const V divisor = hn::Add(hn::Mul(hn::Sqrt(v), spread), epsilon);
    w = hn::Sub(w, hn::Mul(rate, hn::Div(m, divisor)));
  }
};

void run(const AdamNumbers& numbers, const float* parameter, const float* gradient, const float* mean,
         const float* square, float* parameter_new, float* mean_new, float* square_new, int64_t n) {
  const Step step(numbers);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    V w = hn::LoadU(f32, parameter + i), m = hn::LoadU(f32, mean + i), v = hn::LoadU(f32, square + i);
    step(w, hn::LoadU(f32, gradient + i), m, v);
    hn::StoreU(w, f32, parameter_new + i);
    hn::StoreU(m, f32, mean_new + i);
    hn::StoreU(v, f32, square_new + i);
  }
  if (i == n) return;
  const auto mask = hn::FirstN(f32, static_cast<size_t>(n - i));
  V w = hn::MaskedLoad(mask, f32, parameter + i), m = hn::MaskedLoad(mask, f32, mean + i),
    v = hn::MaskedLoad(mask, f32, square + i);
  step(w, hn::MaskedLoad(mask, f32, gradient + i), m, v);
  hn::BlendedStore(w, mask, f32, parameter_new + i);
  hn::BlendedStore(m, mask, f32, mean_new + i);
  hn::BlendedStore(v, mask, f32, square_new + i);
}

}  // namespace

AdamLoop adam_loop() { return run; }

}  // namespace epl::cpu::EPL_SIMD
