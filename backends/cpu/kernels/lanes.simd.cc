// The lanes, compiled once per processor level. See lanes.h.
#include "backends/cpu/kernels/lanes.h"

#include "backends/cpu/simd_math64.h"

namespace epl::cpu::EPL_SIMD {
namespace {

// --- loops ---

// Runs Op over a tile of reals, full vectors first, the rest under a mask.
template <class T, class Op, int arity, int variant>
void vector_lane(const void* pa, const void* pb, const void* pc, void* py, int64_t n) {
  constexpr hn::ScalableTag<T> d;
  using Vector = hn::Vec<decltype(d)>;
  constexpr int64_t step = hn::MaxLanes(d);
  const T *a = static_cast<const T*>(pa), *b = static_cast<const T*>(pb), *c = static_cast<const T*>(pc);
  T* y = static_cast<T*>(py);
  constexpr bool one_a = variant & 1, one_b = variant & 2, one_c = variant & 4;
  Vector va = one_a ? hn::Set(d, *a) : hn::Zero(d), vb = hn::Zero(d), vc = hn::Zero(d);
  if constexpr (arity > 1 && one_b) vb = hn::Set(d, *b);
  if constexpr (arity > 2 && one_c) vc = hn::Set(d, *c);
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
  for (; i + step <= n; i += step) {
    const Vector r = apply([&]<bool one>(const T* p, Vector v) HWY_ATTR {
      if constexpr (one) {
        return v;
      } else {
        return hn::LoadU(d, p + i);
      }
    });
    hn::StoreU(r, d, y + i);
  }
  if (i < n) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(n - i));
    const Vector r = apply([&]<bool one>(const T* p, Vector v) HWY_ATTR {
      if constexpr (one) {
        return v;
      } else {
        return hn::MaskedLoad(mask, d, p + i);
      }
    });
    hn::BlendedStore(r, mask, d, y + i);
  }
}

// The same in plain loops, for integers, for what changes the type, and for functions without a vector form. All of
// them are exact or call a function of our own, so no compiler changes their bits.
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

using Row = Lane[lane_variants];

template <class T, class Op, int arity, int variant = 0> void add_vectors(Row& row) {
  row[variant] = vector_lane<T, Op, arity, variant>;
  if constexpr (variant + 1 < 1 << arity) add_vectors<T, Op, arity, variant + 1>(row);
}
template <class From, class To, class Op, int arity, int variant = 0> void add_plain(Row& row) {
  row[variant] = plain_lane<From, To, Op, arity, variant>;
  if constexpr (variant + 1 < 1 << arity) add_plain<From, To, Op, arity, variant + 1>(row);
}

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

template <Pair> struct Paired;
#define EPL_PAIR(name, ...)                                                             \
  template <> struct Paired<Pair::name> {                                               \
    template <class X> static HWY_INLINE X apply(X a, X b, X c) { return __VA_ARGS__; } \
  };
EPL_PAIR(mul_add, hn::Add(hn::Mul(a, b), c))
EPL_PAIR(mul_sub, hn::Sub(hn::Mul(a, b), c))
EPL_PAIR(mul_rsub, hn::Sub(c, hn::Mul(a, b)))
EPL_PAIR(add_mul, hn::Mul(hn::Add(a, b), c))
EPL_PAIR(sub_mul, hn::Mul(hn::Sub(a, b), c))
EPL_PAIR(mul_mul, hn::Mul(hn::Mul(a, b), c))

// --- operations of integers ---

// They wrap where signed arithmetic would be undefined; the cases of core/ir/scalar_ops.inc.
using W = int64_t;
using U = uint64_t;
HWY_INLINE W whole_power(W base, W exponent) {
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
EPL_INTEGER(pow, (W a, W b), whole_power(a, b))
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

// --- memory and classes ---

// Elements of 16 bits, as memory holds them.
struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};

struct Truth {
  template <class T> static HWY_INLINE bool apply(T a) { return a != 0; }
};
struct Copy {
  template <class T> static HWY_INLINE T apply(T a) { return a; }
};
template <class To> struct Convert {
  template <class T> static HWY_INLINE To apply(T a) { return static_cast<To>(a); }
  static HWY_INLINE To apply(Half a) { return static_cast<To>(half_to_float(a.bits)); }
  static HWY_INLINE To apply(Bfloat a) { return static_cast<To>(bfloat_to_float(a.bits)); }
};
// Through store_double, which rounds a float64 once.
template <class Bits, DType type> struct Narrow {
  template <class T> static HWY_INLINE Bits apply(T a) {
    Bits out;
    if constexpr (sizeof(T) == sizeof(double)) {
      store_double(type, &out.bits, 0, a);
    } else {
      out.bits = type == DType::f16 ? float_to_half(a) : float_to_bfloat(a);
    }
    return out;
  }
};
struct ToInteger {
  template <class T> static HWY_INLINE W apply(T a) {
    if (!(a == a)) return 0;
    if (a >= static_cast<T>(9223372036854775808.0)) return INT64_MAX;
    if (a <= static_cast<T>(-9223372036854775808.0)) return INT64_MIN;
    return static_cast<W>(a);
  }
};

// --- the table ---

class Table {
 public:
  LaneTable make() {
    add_reals<float, ElementClass::real32>();
    add_reals<double, ElementClass::real64>();
    add_copy<float, ElementClass::real32>(DType::f32);
    add_copy<double, ElementClass::real64>(DType::f64);
    add_copy<W, ElementClass::integer>(DType::i64);
    add_memory<float, double>(DType::f32, ElementClass::real64);
    add_integer<int8_t>(DType::i8);
    add_integer<int16_t>(DType::i16);
    add_integer<int32_t>(DType::i32);
    add_integer<uint8_t>(DType::u8);
    add_integer<uint16_t>(DType::u16);
    add_integer<uint32_t>(DType::u32);
    return table_;
  }

 private:
  Row& row(int index) { return table_.lanes[index]; }

  template <class T, ElementClass c> void add_reals() {
#define EPL_SCALAR_OP(name, arity, family, real, integer) add_operation<T, c, ScalarOp::name, arity>();
#include "core/ir/scalar_ops.inc"
#undef EPL_SCALAR_OP
    add_plain<T, T, RealMod, 2>(row(real_row(c, ScalarOp::mod)));
    add_plain<T, T, RealFmod, 2>(row(real_row(c, ScalarOp::fmod)));
    add_pairs<T, c>();
    add_memory<Half, T>(DType::f16, c, Narrow<Half, DType::f16>());
    add_memory<Bfloat, T>(DType::bf16, c, Narrow<Bfloat, DType::bf16>());
    add_plain<uint8_t, T, Truth, 1>(row(load_row(DType::boolean, c)));
    add_plain<T, uint8_t, Truth, 1>(row(store_row(c, DType::boolean)));
    add_plain<T, W, ToInteger, 1>(row(convert_row(c, ElementClass::integer)));
    add_plain<W, T, Convert<T>, 1>(row(convert_row(ElementClass::integer, c)));
    add_plain<W, T, Truth, 1>(row(truth_row(c)));
  }

  template <class T, ElementClass c, ScalarOp op, int arity> void add_operation() {
    if constexpr (requires { sizeof(Real<op>); }) add_vectors<T, Real<op>, arity>(row(real_row(c, op)));
    if constexpr (requires { sizeof(Integer<op>); }) add_plain<W, W, Integer<op>, arity>(row(integer_row(c, op)));
    if constexpr (requires { sizeof(Compare<op>); }) add_plain<W, T, Compare<op>, arity>(row(integer_row(c, op)));
  }

  template <class T, ElementClass c, int pair = 0> void add_pairs() {
    if constexpr (pair < static_cast<int>(Pair::count)) {
      add_vectors<T, Paired<static_cast<Pair>(pair)>, 3>(row(pair_row(c, static_cast<Pair>(pair))));
      add_pairs<T, c, pair + 1>();
    }
  }

  // A type as its class computes with it.
  template <class T, ElementClass c> void add_copy(DType type) {
    add_plain<T, T, Copy, 1>(row(load_row(type, c)));
    add_plain<T, T, Copy, 1>(row(store_row(c, type)));
  }
  template <class Memory, class T, class Store = Convert<Memory>>
  void add_memory(DType type, ElementClass c, Store = {}) {
    add_plain<Memory, T, Convert<T>, 1>(row(load_row(type, c)));
    add_plain<T, Memory, Store, 1>(row(store_row(c, type)));
  }
  template <class Memory> void add_integer(DType type) { add_memory<Memory, W>(type, ElementClass::integer); }

  LaneTable table_;
};

}  // namespace

const LaneTable& lane_table() {
  static const LaneTable table = Table().make();
  return table;
}

}  // namespace epl::cpu::EPL_SIMD
