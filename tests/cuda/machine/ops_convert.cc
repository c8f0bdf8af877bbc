// Conversions between types, with every rounding that PTX has.
#include <algorithm>
#include <cfenv>

#include "tests/cuda/machine/reading.h"

namespace epl::cuda_machine {
namespace {

// `mode`: the rounding (0: none, 1: to nearest even, 2: towards zero, 3: down, 4: up), then flags.
enum : uint8_t { kRounding = 7, kInteger = 8, kSaturate = 16, kFlush = 32 };

template <class T> constexpr bool kFloat = !std::is_integral_v<T>;
template <class T> constexpr bool kSmall = std::is_same_v<T, Half> || std::is_same_v<T, Brain>;

double whole(double value, int rounding) {
  return rounding == 1   ? std::nearbyint(value)
         : rounding == 2 ? std::trunc(value)
         : rounding == 3 ? std::floor(value)
         : rounding == 4 ? std::ceil(value)
                         : value;
}

template <class D, class S> D integer_to_integer(S value, bool saturate) {
  if (saturate) {
    const auto wide_value = static_cast<__int128>(value);
    return static_cast<D>(std::clamp(wide_value, static_cast<__int128>(std::numeric_limits<D>::min()),
                                     static_cast<__int128>(std::numeric_limits<D>::max())));
  }
  return static_cast<D>(value);
}

template <class D> D float_to_integer(double value, int rounding, bool is_double) {
  using Limits = std::numeric_limits<D>;
  if (std::isnan(value)) {
    if (sizeof(D) < 8 && !is_double) return 0;
    return static_cast<D>(uint64_t{1} << (8 * sizeof(D) - 1));
  }
  const double rounded_value = whole(value, rounding);
  // The largest is no double where it has 64 bits; one more than it always is.
  if (rounded_value >= std::ldexp(1.0, Limits::digits)) return Limits::max();
  if (rounded_value <= static_cast<double>(Limits::min())) return Limits::min();
  return static_cast<D>(rounded_value);
}

template <class D, class S> D integer_to_float(S value, int rounding) {
  const int modes[] = {FE_TONEAREST, FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  std::fesetround(modes[rounding]);
  volatile S from = value;
  volatile D result = static_cast<D>(from);
  std::fesetround(FE_TONEAREST);
  return result;
}

template <class D, class S> D float_to_float(S value, uint8_t mode) {
  const int rounding = mode & kRounding;
  double from = wide(value);
  if ((mode & kFlush) != 0 && std::is_same_v<S, float>) from = flushed(static_cast<float>(from));
  if ((mode & kInteger) != 0) from = whole(from, rounding);
  if ((mode & kSaturate) != 0) from = std::isnan(from) || from < 0 ? 0 : std::min(from, 1.0);
  if constexpr (kSmall<D>) {
    return rounded<D>(from, rounding != 2);
  } else {
    const int modes[] = {FE_TONEAREST, FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    std::fesetround(modes[(mode & kInteger) != 0 ? 0 : rounding]);
    volatile double exact = from;
    volatile D result = static_cast<D>(exact);
    std::fesetround(FE_TONEAREST);
    if ((mode & kFlush) != 0 && std::is_same_v<D, float>) result = flushed<D>(result);
    if constexpr (std::is_same_v<S, Brain>) {
      if (std::isnan(from)) return as<D>(bits(static_cast<float>(from)));
    }
    return canonical(D{result});
  }
}

template <class D, class S> D converted(S value, uint8_t mode) {
  if constexpr (!kFloat<D> && !kFloat<S>) {
    return integer_to_integer<D>(value, (mode & kSaturate) != 0);
  } else if constexpr (!kFloat<D>) {
    double from = wide(value);
    if ((mode & kFlush) != 0) from = flushed(static_cast<float>(from));
    return float_to_integer<D>(from, mode & kRounding, std::is_same_v<S, double>);
  } else if constexpr (!kFloat<S>) {
    if constexpr (kSmall<D>) {
      return rounded<D>(static_cast<double>(value), (mode & kRounding) != 2);
    } else {
      return integer_to_float<D>(value, mode & kRounding);
    }
  } else {
    return float_to_float<D>(value, mode);
  }
}

template <class D, class S> void convert(Warp& warp, const Instr& instr) {
  uint64_t* d = warp.at(instr.d);
  const uint64_t* a = warp.at(instr.a);
  warp.each([&](int lane) {
    const D result = converted<D, S>(as<S>(a[lane]), instr.mode);
    if constexpr (kSmall<D>) {
      d[lane] = result.bits;
    } else {
      d[lane] = bits<D>(result);
    }
  });
}

template <class F> Run with_any(Reading& r, const std::string& type, F&& f) {
  if (type == "f16") return f.template operator()<Half>();
  if (type == "bf16") return f.template operator()<Brain>();
  if (type == "f32") return f.template operator()<float>();
  if (type == "f64") return f.template operator()<double>();
  return with_integer(r, type, f);
}

// Two floats into one register, the first into its upper half.
template <class D> void packed(Warp& warp, const Instr& instr) {
  uint64_t* d = warp.at(instr.d);
  const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b);
  warp.each([&](int lane) {
    const uint64_t upper = float_to_float<D>(as<float>(a[lane]), instr.mode).bits;
    d[lane] = upper << 16 | float_to_float<D>(as<float>(b[lane]), instr.mode).bits;
  });
}

void cvt(Reading& r) {
  Instr& instr = r.instr;
  const int integer = r.which({"rni", "rzi", "rmi", "rpi"});
  const int plain = integer != 0 ? 0 : r.which({"rn", "rz", "rm", "rp"});
  instr.mode = static_cast<uint8_t>(integer != 0 ? integer | kInteger : plain);
  if (r.take("sat")) instr.mode |= kSaturate;
  if (r.take("ftz")) instr.mode |= kFlush;
  const std::string to = r.type(), from = r.type();
  r.done();
  r.d(to);
  r.a(from);
  if (to == "f16x2" || to == "bf16x2") {
    if (from != "f32") r.unknown("from ." + from);
    r.b(from);
    instr.run = to == "f16x2" ? packed<Half> : packed<Brain>;
    return;
  }
  if (is_float(to) && from.ends_with("64") && !is_float(from) && to.ends_with("16"))
    r.unknown("from 64 bits into a small float");
  if (is_float(from) && !is_float(to) && integer == 0) r.unknown("no rounding is given");
  if (to.ends_with("16") && is_float(to) && (plain > 2)) r.unknown("this rounding of a small float");
  instr.run = with_any(
      r, to, [&]<class D>() -> Run { return with_any(r, from, [&]<class S>() -> Run { return convert<D, S>; }); });
}

}  // namespace

void add_conversions(Reads& reads) { reads["cvt"] = cvt; }

}  // namespace epl::cuda_machine
