// What each scalar operation computes, for *.simd.cc files: Real for vectors of float32 and float64, Integer and
// Compare for int64. Whoever includes it has ScalarOp: the host from core/ir/scalar.h, the text for a GPU, which is
// made of this file too, from its own.
#pragma once

#include "backends/cpu/simd_math64.h"

namespace epl::cpu::EPL_SIMD {

// --- operations of reals ---

template <class X> HWY_INLINE X number(X like, double value) {
  constexpr hn::DFromV<X> d;
  (void)like;
  return hn::Set(d, static_cast<hn::TFromD<decltype(d)>>(value));
}
template <class X> HWY_INLINE X zero(X like) { return number(like, 0); }
template <class X> using MaskOf = hn::Mask<hn::DFromV<X>>;
template <class X> HWY_INLINE MaskOf<X> holds(X v) { return not_equal(v, zero(v)); }
// A truth value as a number of the type of `like`.
template <class X> HWY_INLINE X truth(X like, MaskOf<X> m) { return hn::IfThenElseZero(m, number(like, 1)); }

// The vector form of an operation, for float32 and float64 alike; those without one have none.
template <ScalarOp> struct Real;
#define EPL_REAL(name, parameters, ...)                                             \
  template <> struct Real<ScalarOp::name> {                                         \
    template <class X> static HWY_INLINE X apply parameters { return __VA_ARGS__; } \
  };
EPL_REAL(add, (X a, X b), hn::Add(a, b))
EPL_REAL(sub, (X a, X b), hn::Sub(a, b))
EPL_REAL(mul, (X a, X b), hn::Mul(a, b))
EPL_REAL(div, (X a, X b), hn::Div(a, b))
EPL_REAL(fma, (X a, X b, X c), hn::MulAdd(a, b, c))
EPL_REAL(max, (X a, X b), max_nan(a, b))
EPL_REAL(min, (X a, X b), min_nan(a, b))
EPL_REAL(pow, (X a, X b), pow(a, b))
EPL_REAL(atan2, (X a, X b), atan2(a, b))
EPL_REAL(neg, (X a), hn::Neg(a))
EPL_REAL(abs, (X a), hn::Abs(a))
EPL_REAL(sign, (X a),
         hn::IfThenElse(hn::Gt(a, zero(a)), number(a, 1), hn::IfThenElse(hn::Lt(a, zero(a)), number(a, -1), a)))
EPL_REAL(sqrt, (X a), hn::Sqrt(a))
EPL_REAL(reciprocal, (X a), hn::Div(number(a, 1), a))
EPL_REAL(exp, (X a), exp(a))
EPL_REAL(expm1, (X a), expm1(a))
EPL_REAL(log, (X a), log(a))
EPL_REAL(log1p, (X a), log1p(a))
EPL_REAL(erf, (X a), erf(a))
EPL_REAL(sin, (X a), sin(a))
EPL_REAL(cos, (X a), cos(a))
EPL_REAL(tan, (X a), tan(a))
EPL_REAL(asin, (X a), asin(a))
EPL_REAL(acos, (X a), acos(a))
EPL_REAL(atan, (X a), atan(a))
EPL_REAL(sinh, (X a), sinh(a))
EPL_REAL(cosh, (X a), cosh(a))
EPL_REAL(tanh, (X a), tanh(a))
EPL_REAL(asinh, (X a), asinh(a))
EPL_REAL(acosh, (X a), acosh(a))
EPL_REAL(atanh, (X a), atanh(a))
EPL_REAL(sigmoid, (X a), sigmoid(a))
EPL_REAL(floor, (X a), hn::Floor(a))
EPL_REAL(ceil, (X a), hn::Ceil(a))
EPL_REAL(round, (X a), hn::Round(a))
EPL_REAL(eq, (X a, X b), truth(a, hn::Eq(a, b)))
EPL_REAL(ne, (X a, X b), truth(a, not_equal(a, b)))
EPL_REAL(lt, (X a, X b), truth(a, hn::Lt(a, b)))
EPL_REAL(le, (X a, X b), truth(a, hn::Le(a, b)))
EPL_REAL(gt, (X a, X b), truth(a, hn::Gt(a, b)))
EPL_REAL(ge, (X a, X b), truth(a, hn::Ge(a, b)))
EPL_REAL(logical_and, (X a, X b), truth(a, hn::And(holds(a), holds(b))))
EPL_REAL(logical_or, (X a, X b), truth(a, hn::Or(holds(a), holds(b))))
EPL_REAL(logical_xor, (X a, X b), truth(a, hn::Xor(holds(a), holds(b))))
EPL_REAL(logical_not, (X a), truth(a, hn::Eq(a, zero(a))))
EPL_REAL(is_nan, (X a), truth(a, is_nan(a)))
EPL_REAL(is_inf, (X a), truth(a, hn::Eq(hn::Abs(a), number(a, infinity))))
EPL_REAL(select, (X a, X b, X c), hn::IfThenElse(holds(a), b, c))

// Exact in every case, whatever the C library: the remainder of a division of floats is a float.
HWY_INLINE float remainder_of(float a, float b) { return __builtin_fmodf(a, b); }
HWY_INLINE double remainder_of(double a, double b) { return __builtin_fmod(a, b); }
struct RealFmod {
  template <class T> static HWY_INLINE T apply(T a, T b) { return remainder_of(a, b); }
};
struct RealMod {
  template <class T> static HWY_INLINE T apply(T a, T b) {
    T r = remainder_of(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
};

// --- operations of integers ---

// They wrap where signed arithmetic would be undefined; the cases of core/ir/scalar_ops.inc.
using W = int64_t;
using U = uint64_t;
HWY_INLINE W integer_power(W base, W exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 != 0 ? -1 : 1) : 0;
  U result = 1, factor = U(base);
  for (U left = U(exponent); left != 0; left >>= 1, factor *= factor) {
    if ((left & 1) != 0) result *= factor;
  }
  return static_cast<W>(result);
}

template <ScalarOp> struct Integer;
#define EPL_INTEGER(name, parameters, ...)                                       \
  template <> struct Integer<ScalarOp::name> {                                   \
    static HWY_INLINE W apply parameters { return static_cast<W>(__VA_ARGS__); } \
  };
EPL_INTEGER(add, (W a, W b), U(a) + U(b))
EPL_INTEGER(sub, (W a, W b), U(a) - U(b))
EPL_INTEGER(mul, (W a, W b), U(a) * U(b))
EPL_INTEGER(div, (W a, W b), b == 0 ? 0 : b == -1 ? W(0 - U(a)) : a / b)
EPL_INTEGER(fma, (W a, W b, W c), U(a) * U(b) + U(c))
EPL_INTEGER(max, (W a, W b), a > b ? a : b)
EPL_INTEGER(min, (W a, W b), a < b ? a : b)
EPL_INTEGER(pow, (W a, W b), integer_power(a, b))
EPL_INTEGER(mod, (W a, W b), b == 0 || b == -1 ? 0 : (a % b != 0 && (a % b < 0) != (b < 0)) ? a % b + b : a % b)
EPL_INTEGER(fmod, (W a, W b), b == 0 || b == -1 ? 0 : a % b)
EPL_INTEGER(neg, (W a), 0 - U(a))
EPL_INTEGER(abs, (W a), a < 0 ? W(0 - U(a)) : a)
EPL_INTEGER(sign, (W a), (a > 0) - (a < 0))
EPL_INTEGER(floor, (W a), a)
EPL_INTEGER(ceil, (W a), a)
EPL_INTEGER(round, (W a), a)
EPL_INTEGER(bit_and, (W a, W b), a& b)
EPL_INTEGER(bit_or, (W a, W b), a | b)
EPL_INTEGER(bit_xor, (W a, W b), a ^ b)
EPL_INTEGER(bit_not, (W a), ~a)
EPL_INTEGER(shift_left, (W a, W b), b < 0 || b > 63 ? 0 : U(a) << b)
EPL_INTEGER(shift_right, (W a, W b), a >> (b < 0 || b > 63 ? 63 : b))
EPL_INTEGER(select, (W a, W b, W c), a ? b : c)

// Comparisons of integers give truth values, which are reals.
template <ScalarOp> struct Compare;
#define EPL_COMPARE(name, expression)                             \
  template <> struct Compare<ScalarOp::name> {                    \
    static HWY_INLINE bool apply(W a, W b) { return expression; } \
  };
EPL_COMPARE(eq, a == b)
EPL_COMPARE(ne, a != b)
EPL_COMPARE(lt, a < b)
EPL_COMPARE(le, a <= b)
EPL_COMPARE(gt, a > b)
EPL_COMPARE(ge, a >= b)

// A real becomes an integer by truncation and saturates; NaN is 0.
struct ToInteger {
  template <class T> static HWY_INLINE W apply(T a) {
    if (!(a == a)) return 0;
    if (a >= static_cast<T>(9223372036854775808.0)) return INT64_MAX;
    if (a <= static_cast<T>(-9223372036854775808.0)) return INT64_MIN;
    return static_cast<W>(a);
  }
};

}  // namespace epl::cpu::EPL_SIMD
