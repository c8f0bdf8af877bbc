// The lanes, compiled once per processor level. See lanes.h.
#include "backends/cpu/kernels/lanes.h"

#include "backends/cpu/simd_math.h"
#include "core/ir/scalar.h"

namespace epl::cpu::EPL_SIMD {
namespace {

template <bool one> HWY_INLINE V operand(const float* p, int64_t i, V value) {
  if constexpr (one) {
    return value;
  } else {
    return hn::LoadU(f32, p + i);
  }
}
template <bool one> HWY_INLINE V tail_operand(const float* p, int64_t i, V value, hn::Mask<F> mask) {
  if constexpr (one) {
    return value;
  } else {
    return hn::MaskedLoad(mask, f32, p + i);
  }
}

// Runs `op` over a tile, whole vectors first, the rest under a mask.
template <class Op, int arity, int variant>
void real_lane(const void* pa, const void* pb, const void* pc, void* py, int64_t n) {
  const float *a = static_cast<const float*>(pa), *b = static_cast<const float*>(pb),
              *c = static_cast<const float*>(pc);
  float* y = static_cast<float*>(py);
  constexpr bool one_a = variant & 1, one_b = variant & 2, one_c = variant & 4;
  V va = one_a ? set(*a) : hn::Zero(f32), vb = hn::Zero(f32), vc = hn::Zero(f32);
  if constexpr (arity > 1 && one_b) vb = set(*b);
  if constexpr (arity > 2 && one_c) vc = set(*c);
  auto apply = [&](auto load) HWY_ATTR {
    if constexpr (arity == 1) {
      return Op::apply(load.template operator()<one_a>(a, va));
    } else if constexpr (arity == 2) {
      return Op::apply(load.template operator()<one_a>(a, va), load.template operator()<one_b>(b, vb));
    } else {
      return Op::apply(load.template operator()<one_a>(a, va), load.template operator()<one_b>(b, vb),
                       load.template operator()<one_c>(c, vc));
    }
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(apply([&]<bool one>(const float* p, V v) HWY_ATTR { return operand<one>(p, i, v); }), f32, y + i);
  }
  if (i < n) {
    auto mask = hn::FirstN(f32, static_cast<size_t>(n - i));
    V r = apply([&]<bool one>(const float* p, V v) HWY_ATTR { return tail_operand<one>(p, i, v, mask); });
    hn::BlendedStore(r, mask, f32, y + i);
  }
}

// The same for other element types, in plain loops: exact operations, whose bits no compiler changes.
template <class From, class To, class Op, int arity, int variant>
void plain_lane(const void* pa, const void* pb, const void* pc, void* py, int64_t n) {
  const From *a = static_cast<const From*>(pa), *b = static_cast<const From*>(pb), *c = static_cast<const From*>(pc);
  To* y = static_cast<To*>(py);
  constexpr int sa = variant & 1 ? 0 : 1, sb = variant & 2 ? 0 : 1, sc = variant & 4 ? 0 : 1;
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (arity == 1) y[i] = Op::apply(a[i * sa]);
    if constexpr (arity == 2) y[i] = Op::apply(a[i * sa], b[i * sb]);
    if constexpr (arity == 3) y[i] = Op::apply(a[i * sa], b[i * sb], c[i * sc]);
  }
}

template <class Op, int arity> void add_real(Lane (&row)[lane_variants]) {
  row[0] = real_lane<Op, arity, 0>;
  row[1] = real_lane<Op, arity, 1>;
  if constexpr (arity > 1) {
    row[2] = real_lane<Op, arity, 2>;
    row[3] = real_lane<Op, arity, 3>;
  }
  if constexpr (arity > 2) {
    row[4] = real_lane<Op, arity, 4>;
    row[5] = real_lane<Op, arity, 5>;
    row[6] = real_lane<Op, arity, 6>;
    row[7] = real_lane<Op, arity, 7>;
  }
}
template <class From, class To, class Op, int arity> void add_plain(Lane (&row)[lane_variants]) {
  row[0] = plain_lane<From, To, Op, arity, 0>;
  row[1] = plain_lane<From, To, Op, arity, 1>;
  if constexpr (arity > 1) {
    row[2] = plain_lane<From, To, Op, arity, 2>;
    row[3] = plain_lane<From, To, Op, arity, 3>;
  }
  if constexpr (arity > 2) {
    row[4] = plain_lane<From, To, Op, arity, 4>;
    row[5] = plain_lane<From, To, Op, arity, 5>;
    row[6] = plain_lane<From, To, Op, arity, 6>;
    row[7] = plain_lane<From, To, Op, arity, 7>;
  }
}

HWY_INLINE V truth(hn::Mask<F> m) { return hn::IfThenElseZero(m, set(1.0f)); }
HWY_INLINE hn::Mask<F> holds(V v) { return not_equal(v, hn::Zero(f32)); }

// Exact in every case, whatever the C library: the remainder of a division of floats is a float.
HWY_INLINE float remainder_of(float a, float b) { return __builtin_fmodf(a, b); }

#define EPL_REAL(name, arity, parameters, ...)                   \
  struct Real_##name {                                           \
    static HWY_INLINE V apply parameters { return __VA_ARGS__; } \
  };
EPL_REAL(add, 2, (V a, V b), hn::Add(a, b))
EPL_REAL(sub, 2, (V a, V b), hn::Sub(a, b))
EPL_REAL(mul, 2, (V a, V b), hn::Mul(a, b))
EPL_REAL(div, 2, (V a, V b), hn::Div(a, b))
EPL_REAL(fma, 3, (V a, V b, V c), hn::MulAdd(a, b, c))
EPL_REAL(max, 2, (V a, V b), max_nan(a, b))
EPL_REAL(min, 2, (V a, V b), min_nan(a, b))
EPL_REAL(pow, 2, (V a, V b), pow(a, b))
EPL_REAL(atan2, 2, (V a, V b), atan2(a, b))
EPL_REAL(neg, 1, (V a), hn::Neg(a))
EPL_REAL(abs, 1, (V a), hn::Abs(a))
EPL_REAL(sign, 1, (V a),
         hn::IfThenElse(hn::Gt(a, hn::Zero(f32)), set(1.0f), hn::IfThenElse(hn::Lt(a, hn::Zero(f32)), set(-1.0f), a)))
EPL_REAL(sqrt, 1, (V a), hn::Sqrt(a))
EPL_REAL(reciprocal, 1, (V a), hn::Div(set(1.0f), a))
EPL_REAL(exp, 1, (V a), exp(a))
EPL_REAL(expm1, 1, (V a), expm1(a))
EPL_REAL(log, 1, (V a), log(a))
EPL_REAL(log1p, 1, (V a), log1p(a))
EPL_REAL(erf, 1, (V a), erf(a))
EPL_REAL(sin, 1, (V a), sin(a))
EPL_REAL(cos, 1, (V a), cos(a))
EPL_REAL(tan, 1, (V a), tan(a))
EPL_REAL(asin, 1, (V a), asin(a))
EPL_REAL(acos, 1, (V a), acos(a))
EPL_REAL(atan, 1, (V a), atan(a))
EPL_REAL(sinh, 1, (V a), sinh(a))
EPL_REAL(cosh, 1, (V a), cosh(a))
EPL_REAL(tanh, 1, (V a), tanh(a))
EPL_REAL(asinh, 1, (V a), asinh(a))
EPL_REAL(acosh, 1, (V a), acosh(a))
EPL_REAL(atanh, 1, (V a), atanh(a))
EPL_REAL(sigmoid, 1, (V a), sigmoid(a))
EPL_REAL(floor, 1, (V a), hn::Floor(a))
EPL_REAL(ceil, 1, (V a), hn::Ceil(a))
EPL_REAL(round, 1, (V a), hn::Round(a))
EPL_REAL(eq, 2, (V a, V b), truth(hn::Eq(a, b)))
EPL_REAL(ne, 2, (V a, V b), truth(not_equal(a, b)))
EPL_REAL(lt, 2, (V a, V b), truth(hn::Lt(a, b)))
EPL_REAL(le, 2, (V a, V b), truth(hn::Le(a, b)))
EPL_REAL(gt, 2, (V a, V b), truth(hn::Gt(a, b)))
EPL_REAL(ge, 2, (V a, V b), truth(hn::Ge(a, b)))
EPL_REAL(logical_and, 2, (V a, V b), truth(hn::And(holds(a), holds(b))))
EPL_REAL(logical_or, 2, (V a, V b), truth(hn::Or(holds(a), holds(b))))
EPL_REAL(logical_xor, 2, (V a, V b), truth(hn::Xor(holds(a), holds(b))))
EPL_REAL(logical_not, 1, (V a), truth(hn::Eq(a, hn::Zero(f32))))
EPL_REAL(is_nan, 1, (V a), truth(is_nan(a)))
EPL_REAL(is_inf, 1, (V a), truth(hn::Eq(hn::Abs(a), set(infinity))))
EPL_REAL(select, 3, (V a, V b, V c), hn::IfThenElse(holds(a), b, c))

// clang-format off
#define EPL_REAL_LANES(X)                                                                                            \
  X(add, 2) X(sub, 2) X(mul, 2) X(div, 2) X(fma, 3) X(max, 2) X(min, 2) X(pow, 2) X(atan2, 2) X(neg, 1) X(abs, 1)     \
  X(sign, 1) X(sqrt, 1) X(reciprocal, 1) X(exp, 1) X(expm1, 1) X(log, 1) X(log1p, 1) X(erf, 1) X(sin, 1) X(cos, 1)    \
  X(tan, 1) X(asin, 1) X(acos, 1) X(atan, 1) X(sinh, 1) X(cosh, 1) X(tanh, 1) X(asinh, 1) X(acosh, 1) X(atanh, 1)     \
  X(sigmoid, 1) X(floor, 1) X(ceil, 1) X(round, 1) X(eq, 2) X(ne, 2) X(lt, 2) X(le, 2) X(gt, 2) X(ge, 2)              \
  X(logical_and, 2) X(logical_or, 2) X(logical_xor, 2) X(logical_not, 1) X(is_nan, 1) X(is_inf, 1) X(select, 3)
// clang-format on

struct Real_mod {
  static HWY_INLINE float apply(float a, float b) {
    float r = remainder_of(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
};
struct Real_fmod {
  static HWY_INLINE float apply(float a, float b) { return remainder_of(a, b); }
};

EPL_REAL(pair_mul_add, 3, (V a, V b, V c), hn::Add(hn::Mul(a, b), c))
EPL_REAL(pair_mul_sub, 3, (V a, V b, V c), hn::Sub(hn::Mul(a, b), c))
EPL_REAL(pair_mul_rsub, 3, (V a, V b, V c), hn::Sub(c, hn::Mul(a, b)))
EPL_REAL(pair_add_mul, 3, (V a, V b, V c), hn::Mul(hn::Add(a, b), c))
EPL_REAL(pair_sub_mul, 3, (V a, V b, V c), hn::Mul(hn::Sub(a, b), c))
EPL_REAL(pair_mul_mul, 3, (V a, V b, V c), hn::Mul(hn::Mul(a, b), c))

// Integers: wrap where signed arithmetic would be undefined; the cases of evaluate_scalar.
using W = int64_t;
using U = uint64_t;
#define EPL_WHOLE(name, parameters, ...)                                         \
  struct Whole_##name {                                                          \
    static HWY_INLINE W apply parameters { return static_cast<W>(__VA_ARGS__); } \
  };
EPL_WHOLE(add, (W a, W b), U(a) + U(b))
EPL_WHOLE(sub, (W a, W b), U(a) - U(b))
EPL_WHOLE(mul, (W a, W b), U(a) * U(b))
EPL_WHOLE(div, (W a, W b), b == 0 ? 0 : b == -1 ? W(0 - U(a)) : a / b)
EPL_WHOLE(fma, (W a, W b, W c), U(a) * U(b) + U(c))
EPL_WHOLE(max, (W a, W b), a > b ? a : b)
EPL_WHOLE(min, (W a, W b), a < b ? a : b)
EPL_WHOLE(fmod, (W a, W b), b == 0 || b == -1 ? 0 : a % b)
EPL_WHOLE(neg, (W a), 0 - U(a))
EPL_WHOLE(abs, (W a), a < 0 ? W(0 - U(a)) : a)
EPL_WHOLE(sign, (W a), (a > 0) - (a < 0))
EPL_WHOLE(floor, (W a), a)
EPL_WHOLE(ceil, (W a), a)
EPL_WHOLE(round, (W a), a)
EPL_WHOLE(bit_and, (W a, W b), a& b)
EPL_WHOLE(bit_or, (W a, W b), a | b)
EPL_WHOLE(bit_xor, (W a, W b), a ^ b)
EPL_WHOLE(bit_not, (W a), ~a)
EPL_WHOLE(shift_left, (W a, W b), b < 0 || b > 63 ? 0 : U(a) << b)
EPL_WHOLE(shift_right, (W a, W b), a >> (b < 0 || b > 63 ? 63 : b))
EPL_WHOLE(select, (W a, W b, W c), a ? b : c)
struct Whole_mod {
  static HWY_INLINE W apply(W a, W b) {
    if (b == 0 || b == -1) return 0;
    W r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
};
// clang-format off
#define EPL_WHOLE_LANES(X)                                                                                          \
  X(add, 2) X(sub, 2) X(mul, 2) X(div, 2) X(fma, 3) X(max, 2) X(min, 2) X(mod, 2) X(fmod, 2) X(neg, 1) X(abs, 1)     \
  X(sign, 1) X(floor, 1) X(ceil, 1) X(round, 1) X(bit_and, 2) X(bit_or, 2) X(bit_xor, 2) X(bit_not, 1)               \
  X(shift_left, 2) X(shift_right, 2) X(select, 3)
// clang-format on

// Comparisons of integers give truth values, which are real.
#define EPL_COMPARE(name, expression)                                              \
  struct Compare_##name {                                                          \
    static HWY_INLINE float apply(W a, W b) { return (expression) ? 1.0f : 0.0f; } \
  };
EPL_COMPARE(eq, a == b)
EPL_COMPARE(ne, a != b)
EPL_COMPARE(lt, a < b)
EPL_COMPARE(le, a <= b)
EPL_COMPARE(gt, a > b)
EPL_COMPARE(ge, a >= b)

struct RealToWhole {
  static HWY_INLINE W apply(float a) {
    if (!(a == a)) return 0;
    if (a >= 9223372036854775808.0f) return INT64_MAX;
    if (a <= -9223372036854775808.0f) return INT64_MIN;
    return static_cast<W>(a);
  }
};
struct WholeToReal {
  static HWY_INLINE float apply(W a) { return static_cast<float>(a); }
};
struct WholeToTruth {
  static HWY_INLINE float apply(W a) { return a ? 1.0f : 0.0f; }
};
struct TruthToReal {
  static HWY_INLINE float apply(uint8_t a) { return a ? 1.0f : 0.0f; }
};
struct RealToTruth {
  static HWY_INLINE uint8_t apply(float a) { return a != 0; }
};
struct Copy {
  template <class T> static HWY_INLINE T apply(T a) { return a; }
};
template <class To> struct Convert {
  template <class T> static HWY_INLINE To apply(T a) { return static_cast<To>(a); }
};

LaneTable make_table() {
  LaneTable t;
  auto real = [&](ScalarOp op) -> Lane(&)[lane_variants] { return t.real[static_cast<int>(op)]; };
  auto whole = [&](ScalarOp op) -> Lane(&)[lane_variants] { return t.whole[static_cast<int>(op)]; };
  auto convert = [&](Conversion c) -> Lane(&)[lane_variants] { return t.convert[static_cast<int>(c)]; };
#define EPL_X(name, arity) add_real<Real_##name, arity>(real(ScalarOp::name));
  EPL_REAL_LANES(EPL_X)
#undef EPL_X
  add_plain<float, float, Real_mod, 2>(real(ScalarOp::mod));
  add_plain<float, float, Real_fmod, 2>(real(ScalarOp::fmod));
#define EPL_X(name, arity) add_plain<W, W, Whole_##name, arity>(whole(ScalarOp::name));
  EPL_WHOLE_LANES(EPL_X)
#undef EPL_X
#define EPL_X(name) add_plain<W, float, Compare_##name, 2>(whole(ScalarOp::name));
  EPL_X(eq)
  EPL_X(ne)
  EPL_X(lt)
  EPL_X(le)
  EPL_X(gt)
  EPL_X(ge)
#undef EPL_X
#define EPL_X(name) add_real<Real_pair_##name, 3>(t.pair[static_cast<int>(Pair::name)]);
  EPL_X(mul_add)
  EPL_X(mul_sub)
  EPL_X(mul_rsub)
  EPL_X(add_mul)
  EPL_X(sub_mul)
  EPL_X(mul_mul)
#undef EPL_X
  add_plain<float, W, RealToWhole, 1>(convert(Conversion::real_to_whole));
  add_plain<W, float, WholeToReal, 1>(convert(Conversion::whole_to_real));
  add_plain<uint8_t, float, TruthToReal, 1>(convert(Conversion::truth_to_real));
  add_plain<float, uint8_t, RealToTruth, 1>(convert(Conversion::real_to_truth));
  add_plain<W, float, WholeToTruth, 1>(convert(Conversion::whole_to_truth_real));
  add_plain<float, float, Copy, 1>(convert(Conversion::copy_real));
  add_plain<W, W, Copy, 1>(convert(Conversion::copy_whole));
#define EPL_X(name, type)                                                  \
  add_plain<type, W, Convert<W>, 1>(convert(Conversion::name##_to_whole)); \
  add_plain<W, type, Convert<type>, 1>(convert(Conversion::whole_to_##name));
  EPL_X(i8, int8_t)
  EPL_X(i16, int16_t)
  EPL_X(i32, int32_t)
  EPL_X(u8, uint8_t)
  EPL_X(u16, uint16_t)
  EPL_X(u32, uint32_t)
#undef EPL_X
  return t;
}

}  // namespace

const LaneTable& lane_table() {
  static const LaneTable table = make_table();
  return table;
}

}  // namespace epl::cpu::EPL_SIMD
