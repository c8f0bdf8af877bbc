// The loops, compiled once per processor level. See tile_loops.h.
#include "backends/cpu/kernels/tile_loops.h"

#include "backends/cpu/kernels/narrow_elements.simd.h"
#include "backends/cpu/kernels/tile_operations.simd.h"

namespace epl::cpu::EPL_SIMD {
namespace {

// --- loops ---

// Runs Op over a tile of reals, full vectors first, the rest under a mask.
template <class T, class Op, int arity, int variant>
void vector_loop(const void* pa, const void* pb, const void* pc, void* py, int64_t n) {
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
void plain_loop(const void* pa, const void* pb, const void* pc, void* py, int64_t n) {
  const From *a = static_cast<const From*>(pa), *b = static_cast<const From*>(pb), *c = static_cast<const From*>(pc);
  To* y = static_cast<To*>(py);
  constexpr int sa = variant & 1 ? 0 : 1, sb = variant & 2 ? 0 : 1, sc = variant & 4 ? 0 : 1;
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (arity == 1) y[i] = Op::apply(a[i * sa]);
    if constexpr (arity == 2) y[i] = Op::apply(a[i * sa], b[i * sb]);
    if constexpr (arity == 3) y[i] = Op::apply(a[i * sa], b[i * sb], c[i * sc]);
  }
}

using Row = TileLoop[tile_loop_variants];

template <class T, class Op, int arity, int variant = 0> void add_vectors(Row& row) {
  row[variant] = vector_loop<T, Op, arity, variant>;
  if constexpr (variant + 1 < 1 << arity) add_vectors<T, Op, arity, variant + 1>(row);
}
template <class From, class To, class Op, int arity, int variant = 0> void add_plain(Row& row) {
  row[variant] = plain_loop<From, To, Op, arity, variant>;
  if constexpr (variant + 1 < 1 << arity) add_plain<From, To, Op, arity, variant + 1>(row);
}

// Pairs of operations. See tile_loops.h.
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

// --- memory and classes ---

struct Truth {
  template <class T> static HWY_INLINE bool apply(T a) { return a != 0; }
};
struct Copy {
  template <class T> static HWY_INLINE T apply(T a) { return a; }
};
template <class To> struct Convert {
  template <class T> static HWY_INLINE To apply(T a) { return static_cast<To>(a); }
  static HWY_INLINE To apply(Half a) { return static_cast<To>(widened(a)); }
  static HWY_INLINE To apply(Bfloat a) { return static_cast<To>(widened(a)); }
};
// Through store_double, which rounds a float64 once.
template <class Bits, DType type> struct Narrow {
  template <class T> static HWY_INLINE Bits apply(T a) {
    if constexpr (sizeof(T) == sizeof(double)) {
      Bits out;
      store_double(type, &out.bits, 0, a);
      return out;
    } else if constexpr (type == DType::f16) {
      return narrowed_half(a);
    } else {
      return narrowed_bfloat(a);
    }
  }
};

// --- the table ---

class Table {
 public:
  TileLoopTable make() {
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
  Row& row(int index) { return table_.loops[index]; }

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

  TileLoopTable table_;
};

}  // namespace

const TileLoopTable& tile_loop_table() {
  static const TileLoopTable table = Table().make();
  return table;
}

}  // namespace epl::cpu::EPL_SIMD
