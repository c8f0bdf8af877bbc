// Vector mathematics in float32: the same polynomial in every lane, so that results do not depend on the vector's
// width.
//
// For *.simd.cc files only. Every function takes and returns vectors of the widest float32 type and is within 4 units
// in the last place of the true value, on all of float32 unless said otherwise; NaN in gives NaN out. Fused
// multiply-add is written (MulAdd) and available at every level. Coefficients are weighted minimax fits by Lawson's
// iteration, rounded to float32 one by one with the others refitted.
#pragma once

#include <cstdint>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

namespace epl::cpu::EPL_SIMD {

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;
using I = hn::RebindToSigned<F>;
using VI = hn::Vec<I>;
inline constexpr F f32;
inline constexpr I s32;
inline constexpr int lanes = hn::MaxLanes(F());
static_assert(lanes == 8 || lanes == 16 || lanes == 1);  // 1 on a GPU
inline constexpr float infinity = __builtin_inff();

HWY_INLINE V set(float value) { return hn::Set(f32, value); }
// Coefficients from the constant term up, by Horner's rule.
template <class... Rest> HWY_INLINE V horner(V x, float c, Rest... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return set(c);
  } else {
    return hn::MulAdd(horner(x, rest...), x, set(c));
  }
}

struct Reduced {
  V r;  // x - n ln 2, in [-ln2/2, ln2/2]
  V n;
  VI power;  // n plus the bias of `reduce_by_ln2`
};
// The constant pushes n into the low bits of a float, rounded to nearest, so that no conversion is needed; with a bias
// of 127 - k those bits are, shifted, the number 2^(n - k).
template <int bias> HWY_INLINE Reduced reduce_by_ln2(V x) {
  constexpr float push = 12582912.0f + bias;
  V t = hn::MulAdd(x, set(1.44269504f), set(push));
  V n = hn::Sub(t, set(push));
  V r = hn::NegMulAdd(n, set(0.693359375f), x);  // exact: the constant has few bits
  return {hn::NegMulAdd(n, set(-2.12194440e-4f), r), n, hn::ShiftLeft<23>(hn::BitCast(s32, t))};
}
// x between bounds; NaN stays, because x86's and Highway's minimum and maximum return the second operand then.
HWY_INLINE V clamp(V x, float low, float high) { return hn::Min(set(high), hn::Max(set(low), x)); }
// Highway's Ne is false of NaN; these are not.
template <class X> HWY_INLINE auto is_nan(X x) { return hn::Not(hn::Eq(x, x)); }
template <class X> HWY_INLINE auto not_equal(X a, X b) { return hn::Not(hn::Eq(a, b)); }
HWY_INLINE V keep_nan(V x, V y) { return hn::IfThenElse(is_nan(x), x, y); }
// The larger and the smaller; NaN if either is.
template <class X> HWY_INLINE X max_nan(X a, X b) { return hn::IfThenElse(hn::Or(hn::Gt(a, b), is_nan(a)), a, b); }
template <class X> HWY_INLINE X min_nan(X a, X b) { return hn::IfThenElse(hn::Or(hn::Lt(a, b), is_nan(a)), a, b); }

// Results below 1.7e-38 are zero.
HWY_INLINE V exp(V x) {
  Reduced q = reduce_by_ln2<126>(clamp(x, -87.3f, 88.8f));
  V p = horner(q.r, 0.49999994f, 0.166665196f, 0.04166824f, 0.00836882368f, 0.00138232135f);
  V y = hn::Add(hn::MulAdd(hn::Mul(q.r, q.r), p, q.r), set(1.0f));
  V half = hn::Mul(y, hn::BitCast(f32, q.power));  // 2^128 has no float
  return hn::Add(half, half);
}

HWY_INLINE V expm1(V x) {
  Reduced q = reduce_by_ln2<126>(clamp(x, -30.0f, 88.8f));
  V p = horner(q.r, 0.5f, 0.166666687f, 0.0416664742f, 0.00833283924f, 0.00139340537f, 0.00020153739f);
  V y = hn::MulAdd(hn::Mul(q.r, q.r), p, q.r);
  // 2^n (y + 1) - 1 with the small parts apart, halved.
  V h = hn::BitCast(f32, q.power);
  V big = hn::MulAdd(y, h, hn::Sub(h, set(0.5f)));
  V z = hn::IfThenElse(hn::Eq(q.n, hn::Zero(f32)), y, hn::Add(big, big));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(f32)), x, z);  // keeps the sign of zero
}

// log(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)], less f.
HWY_INLINE V log1p_tail(V f) {
  V p = horner(f, 0.333333105f, -0.249999866f, 0.200022236f, -0.166692495f, 0.142187163f, -0.123844013f, 0.118726179f,
               -0.117893793f, 0.0691563264f);
  V s = hn::Mul(f, f);
  return hn::MulAdd(hn::Mul(s, f), p, hn::Mul(s, set(-0.5f)));
}

HWY_INLINE V log(V x) {
  auto tiny = hn::Lt(x, set(1.17549435e-38f));
  V y = hn::IfThenElse(tiny, hn::Mul(x, set(33554432.0f)), x);
  VI bits = hn::Sub(hn::BitCast(s32, y), hn::Set(s32, 0x3f3504f3));
  V n = hn::ConvertTo(f32, hn::ShiftRight<23>(bits));
  n = hn::IfThenElse(tiny, hn::Sub(n, set(25.0f)), n);
  V m = hn::BitCast(f32, hn::Add(hn::And(bits, hn::Set(s32, 0x7fffff)), hn::Set(s32, 0x3f3504f3)));
  V f = hn::Sub(m, set(1.0f));
  V tail = hn::MulAdd(n, set(-2.12194440e-4f), log1p_tail(f));
  V r = hn::MulAdd(n, set(0.693359375f), hn::Add(f, tail));
  r = hn::IfThenElse(hn::Eq(x, hn::Zero(f32)), set(-infinity), r);
  r = hn::IfThenElse(hn::Lt(x, hn::Zero(f32)), set(__builtin_nanf("")), r);
  return keep_nan(x, hn::IfThenElse(hn::Eq(x, set(infinity)), x, r));
}

HWY_INLINE V log1p(V x) {
  V u = hn::Add(x, set(1.0f));
  // What rounding took from 1 + x, put back to first order (Kahan).
  V lost = hn::Sub(x, hn::Sub(u, set(1.0f)));
  V near = hn::Add(x, log1p_tail(x));
  V far = hn::Add(log(u), hn::Div(lost, u));
  far = hn::IfThenElse(hn::Or(hn::Eq(u, hn::Zero(f32)), hn::Eq(u, set(infinity))), log(u), far);
  return hn::IfThenElse(hn::Lt(hn::Abs(x), set(0.25f)), near, far);
}

HWY_INLINE V tanh(V x) {
  V t = hn::Abs(x);
  V s = hn::Mul(x, x);
  V p = horner(s, -0.333332837f, 0.133314863f, -0.0537431724f, 0.0206497088f, -0.00571620278f);
  V near = hn::MulAdd(hn::Mul(s, x), p, x);
  V e = exp(hn::Add(t, t));
  V far = hn::CopySign(hn::Sub(set(1.0f), hn::Div(set(2.0f), hn::Add(e, set(1.0f)))), x);
  return hn::IfThenElse(hn::Lt(t, set(0.625f)), near, far);
}

HWY_INLINE V sigmoid(V x) {
  // exp of a negative number only: no overflow, and full relative precision on both sides.
  V e = exp(hn::Neg(hn::Abs(x)));
  V d = hn::Div(set(1.0f), hn::Add(set(1.0f), e));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(f32)), hn::Mul(e, d), d);
}

HWY_INLINE V erf(V x) {
  V t = hn::Abs(x);
  V s = hn::Mul(x, x);
  V p = horner(s, 0.128379166f, -0.37612626f, 0.112835832f, -0.0268536936f, 0.00518808188f, -0.000800798589f,
               7.84658187e-05f);
  V near = hn::MulAdd(x, p, x);
  // Beyond 1: 1 - exp(-q(t)), exact to the last place at 4, where erf has become 1.
  V c = hn::Min(set(4.0f), t);
  V q = horner(c, 0.000341512932f, 1.12708926f, 0.638144672f, 0.103106916f, -0.0218381416f, 0.0029476746f,
               -0.000186380174f);
  V far = hn::CopySign(hn::Sub(set(1.0f), exp(hn::Neg(q))), x);
  return hn::IfThenElse(hn::Lt(t, set(1.0f)), near, far);
}

struct Quadrant {
  V sin, cos;  // of the angle left over, in [-pi/4, pi/4]
  V q;         // quarter turns taken off, modulo 4: 0, 1, 2 or 3
};
// Quarter turns are taken off in float64, so that angles up to 1e6 keep their precision; beyond 1e9 it is lost.
HWY_INLINE Quadrant reduce_angle(V x) {
  using D = hn::ScalableTag<double>;
  constexpr D f64;
  using H = hn::Half<F>;
  constexpr H half;
  auto reduce = [&](auto part, auto& q) HWY_ATTR {
    auto a = hn::PromoteTo(f64, part);
    auto n = hn::Round(hn::Mul(a, hn::Set(f64, 0.63661977236758134308)));
    auto r = hn::NegMulAdd(n, hn::Set(f64, 1.57079632679489655800), a);
    r = hn::NegMulAdd(n, hn::Set(f64, 6.12323399573676603587e-17), r);
    auto turns = hn::Floor(hn::Mul(n, hn::Set(f64, 0.25)));
    q = hn::DemoteTo(half, hn::NegMulAdd(turns, hn::Set(f64, 4.0), n));
    return hn::DemoteTo(half, r);
  };
  hn::Vec<H> q_low, q_high;
  auto low = reduce(hn::LowerHalf(half, x), q_low);
  auto high = reduce(hn::UpperHalf(half, x), q_high);
  V r = hn::Combine(f32, high, low);
  V s = hn::Mul(r, r);
  V sin = hn::MulAdd(hn::Mul(s, r), horner(s, -0.166666672f, 0.00833337288f, -0.000198502952f, 2.80435847e-06f), r);
  V cos = hn::MulAdd(hn::Mul(s, s), horner(s, 0.0416666679f, -0.00138889754f, 2.4820185e-05f, -2.8703937e-07f),
                     hn::MulAdd(s, set(-0.5f), set(1.0f)));
  return {sin, cos, hn::Combine(f32, q_high, q_low)};
}
HWY_INLINE V sin(V x) {
  Quadrant a = reduce_angle(x);
  V y = hn::IfThenElse(hn::Or(hn::Eq(a.q, set(1.0f)), hn::Eq(a.q, set(3.0f))), a.cos, a.sin);
  return hn::IfThenElse(hn::Ge(a.q, set(2.0f)), hn::Neg(y), y);
}
HWY_INLINE V cos(V x) {
  Quadrant a = reduce_angle(x);
  V y = hn::IfThenElse(hn::Or(hn::Eq(a.q, set(1.0f)), hn::Eq(a.q, set(3.0f))), a.sin, a.cos);
  return hn::IfThenElse(hn::Or(hn::Eq(a.q, set(1.0f)), hn::Eq(a.q, set(2.0f))), hn::Neg(y), y);
}
HWY_INLINE V tan(V x) {
  Quadrant a = reduce_angle(x);
  auto odd = hn::Or(hn::Eq(a.q, set(1.0f)), hn::Eq(a.q, set(3.0f)));
  return hn::Div(hn::IfThenElse(odd, hn::Neg(a.cos), a.sin), hn::IfThenElse(odd, a.sin, a.cos));
}

HWY_INLINE V asin(V x) { return hn::Asin(f32, x); }
HWY_INLINE V acos(V x) { return hn::Acos(f32, x); }
HWY_INLINE V atan(V x) { return hn::Atan(f32, x); }
// The angle of the point (x, y); zero over zero is a zero angle or half a turn, as IEEE 754 recommends.
HWY_INLINE V atan2(V y, V x) {
  V ax = hn::Abs(x), ay = hn::Abs(y);
  V big = hn::Max(ax, ay), small = hn::Min(ax, ay);
  V ratio = hn::IfThenElse(hn::Eq(big, small), set(1.0f), hn::Div(small, big));
  V r = atan(hn::IfThenElse(hn::Eq(big, hn::Zero(f32)), hn::Zero(f32), ratio));
  r = hn::IfThenElse(hn::Gt(ay, ax), hn::Sub(set(1.57079637f), r), r);
  auto left = hn::Lt(hn::CopySign(set(1.0f), x), hn::Zero(f32));
  r = hn::CopySign(hn::IfThenElse(left, hn::Sub(set(3.14159274f), r), r), y);
  return keep_nan(x, keep_nan(y, r));
}

HWY_INLINE V sinh(V x) {
  V t = hn::Abs(x);
  V e = expm1(t);
  V near = hn::Mul(set(0.5f), hn::Add(e, hn::Div(e, hn::Add(e, set(1.0f)))));
  V h = exp(hn::Mul(t, set(0.5f)));
  V far = hn::Mul(hn::Mul(set(0.5f), h), h);
  return keep_nan(x, hn::CopySign(hn::IfThenElse(hn::Lt(t, set(20.0f)), near, far), x));
}
HWY_INLINE V cosh(V x) {
  V h = exp(hn::Mul(hn::Abs(x), set(0.5f)));
  V e = hn::Mul(h, h);
  return hn::Add(hn::Mul(hn::Mul(set(0.5f), h), h), hn::Div(set(0.5f), e));
}
HWY_INLINE V asinh(V x) {
  V t = hn::Abs(x);
  V s = hn::Mul(t, t);
  V near = log1p(hn::Add(t, hn::Div(s, hn::Add(set(1.0f), hn::Sqrt(hn::Add(s, set(1.0f)))))));
  V far = hn::Add(log(t), set(0.693147181f));
  return hn::CopySign(hn::IfThenElse(hn::Lt(t, set(1e8f)), near, far), x);
}
HWY_INLINE V acosh(V x) {
  V t = hn::Sub(x, set(1.0f));
  V near = log1p(hn::Add(t, hn::Sqrt(hn::MulAdd(t, t, hn::Add(t, t)))));
  V far = hn::Add(log(x), set(0.693147181f));
  return hn::IfThenElse(hn::Gt(x, set(1e8f)), far, near);
}
HWY_INLINE V atanh(V x) {
  V t = hn::Abs(x);
  V y = hn::Mul(set(0.5f), log1p(hn::Div(hn::Add(t, t), hn::Sub(set(1.0f), t))));
  return hn::CopySign(y, x);
}

// a^b through exp(b log|a|) in float64, with the special cases of IEEE 754.
HWY_INLINE V pow(V a, V b) {
  using D = hn::ScalableTag<double>;
  constexpr D f64;
  using H = hn::Half<F>;
  constexpr H half;
  auto part = [&](auto x, auto y) HWY_ATTR {
    auto base = hn::PromoteTo(f64, x);
    auto exponent = hn::PromoteTo(f64, y);
    auto l = hn::Log(f64, base);
    l = hn::IfThenElse(hn::Eq(base, hn::Zero(f64)), hn::Set(f64, -1e5), l);
    l = hn::IfThenElse(hn::Eq(base, hn::Set(f64, static_cast<double>(infinity))), hn::Set(f64, 1e5), l);
    auto e = hn::Min(hn::Max(hn::Mul(l, exponent), hn::Set(f64, -700.0)), hn::Set(f64, 700.0));
    return hn::DemoteTo(half, hn::Exp(f64, e));
  };
  V t = hn::Abs(a);
  auto low = part(hn::LowerHalf(half, t), hn::LowerHalf(half, b));
  V y = hn::Combine(f32, part(hn::UpperHalf(half, t), hn::UpperHalf(half, b)), low);
  V halved = hn::Mul(b, set(0.5f));
  auto integral = hn::Eq(hn::Round(b), b);
  auto odd = hn::And(integral, not_equal(hn::Round(halved), halved));
  auto negative = hn::Lt(hn::CopySign(set(1.0f), a), hn::Zero(f32));
  y = hn::IfThenElse(hn::And(negative, odd), hn::Neg(y), y);
  auto undefined = hn::And(hn::And(hn::Lt(a, hn::Zero(f32)), hn::Gt(a, set(-infinity))), hn::Not(integral));
  y = hn::IfThenElse(undefined, set(__builtin_nanf("")), y);
  y = keep_nan(a, keep_nan(b, y));
  auto one = hn::Or(hn::Eq(b, hn::Zero(f32)), hn::Eq(a, set(1.0f)));
  auto unit_to_infinity = hn::And(hn::Eq(a, set(-1.0f)), hn::Eq(hn::Abs(b), set(infinity)));
  return hn::IfThenElse(hn::Or(one, unit_to_infinity), set(1.0f), y);
}

}  // namespace epl::cpu::EPL_SIMD
