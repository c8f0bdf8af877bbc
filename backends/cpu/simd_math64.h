// The functions of simd_math.h for vectors of float64. For *.simd.cc files only.
#pragma once

#include "backends/cpu/simd_math.h"
#include "core/base/math.h"

namespace epl::cpu::EPL_SIMD {

using V64 = hn::Vec<hn::ScalableTag<double>>;

// Functions of float64 go element by element through core/base/math.h: the same bits at every level, in the reference
// and at import. A vector form would be faster, but float64 is here for comparisons.
template <double (*f)(double)> HWY_INLINE V64 each(V64 x) {
  constexpr hn::ScalableTag<double> d;
  HWY_ALIGN double values[hn::MaxLanes(d)];
  hn::Store(x, d, values);
  for (double& value : values) value = f(value);
  return hn::Load(d, values);
}
template <double (*f)(double, double)> HWY_INLINE V64 each(V64 x, V64 y) {
  constexpr hn::ScalableTag<double> d;
  HWY_ALIGN double first[hn::MaxLanes(d)], second[hn::MaxLanes(d)];
  hn::Store(x, d, first);
  hn::Store(y, d, second);
  for (size_t i = 0; i < hn::MaxLanes(d); ++i) first[i] = f(first[i], second[i]);
  return hn::Load(d, first);
}
HWY_INLINE V64 exp(V64 x) { return each<math::exp>(x); }
HWY_INLINE V64 expm1(V64 x) { return each<math::expm1>(x); }
HWY_INLINE V64 log(V64 x) { return each<math::log>(x); }
HWY_INLINE V64 log1p(V64 x) { return each<math::log1p>(x); }
HWY_INLINE V64 erf(V64 x) { return each<math::erf>(x); }
HWY_INLINE V64 sin(V64 x) { return each<math::sin>(x); }
HWY_INLINE V64 cos(V64 x) { return each<math::cos>(x); }
HWY_INLINE V64 tan(V64 x) { return each<math::tan>(x); }
HWY_INLINE V64 asin(V64 x) { return each<math::asin>(x); }
HWY_INLINE V64 acos(V64 x) { return each<math::acos>(x); }
HWY_INLINE V64 atan(V64 x) { return each<math::atan>(x); }
HWY_INLINE V64 sinh(V64 x) { return each<math::sinh>(x); }
HWY_INLINE V64 cosh(V64 x) { return each<math::cosh>(x); }
HWY_INLINE V64 tanh(V64 x) { return each<math::tanh>(x); }
HWY_INLINE V64 asinh(V64 x) { return each<math::asinh>(x); }
HWY_INLINE V64 acosh(V64 x) { return each<math::acosh>(x); }
HWY_INLINE V64 atanh(V64 x) { return each<math::atanh>(x); }
HWY_INLINE V64 sigmoid(V64 x) { return each<math::sigmoid>(x); }
HWY_INLINE V64 pow(V64 x, V64 y) { return each<math::pow>(x, y); }
HWY_INLINE V64 atan2(V64 y, V64 x) { return each<math::atan2>(y, x); }

}  // namespace epl::cpu::EPL_SIMD
