// How values lie in the 64 bits of a register.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace epl::cuda_machine {

template <class T> T as(uint64_t slot) {
  T value{};
  std::memcpy(&value, &slot, sizeof value);
  return value;
}

// Integers with a sign are extended by it: a narrow one may be read as a wider one of its register.
template <class T> uint64_t bits(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(static_cast<int64_t>(value)) &
           (std::is_signed_v<T> ? ~uint64_t{0} : ~uint64_t{0} >> (64 - 8 * sizeof(T)));
  } else {
    uint64_t slot = 0;
    std::memcpy(&slot, &value, sizeof value);
    return slot;
  }
}

struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

// A NaN as the device makes them.
inline float canonical(float value) { return std::isnan(value) ? as<float>(0x7fffffff) : value; }
inline double canonical(double value) { return value; }

template <class T> T flushed(T value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(T{0}, value) : value;
}

// A double rounded once to a float of `exponent` and `fraction` bits; `nearest` or towards zero.
inline uint16_t narrow(double value, int exponent, int fraction, bool nearest) {
  const uint64_t all = bits(value);
  const auto sign = static_cast<uint16_t>(all >> 63 << 15);
  if (std::isnan(value)) return 0x7fff;
  const double size = std::fabs(value);
  const int bias = (1 << (exponent - 1)) - 1;
  const auto infinity = static_cast<uint16_t>(((1 << exponent) - 1) << fraction);
  if (std::isinf(size)) return sign | infinity;
  if (size == 0) return sign;
  int power = 0;
  std::frexp(size, &power);                                     // size is in [2^(power-1), 2^power)
  const int lowest = std::max(power - 1, 1 - bias) - fraction;  // the power of the last bit
  const double steps = std::ldexp(size, -lowest);               // exact
  double whole = std::floor(steps);
  const double rest = steps - whole;
  if (nearest && (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) == 1))) ++whole;
  // A carry runs into the exponent by itself.
  const int64_t base = lowest + fraction + bias - 1;
  const int64_t code = static_cast<int64_t>(whole) + (base << fraction);
  if (code >= infinity) return sign | (nearest ? infinity : static_cast<uint16_t>(infinity - 1));
  return static_cast<uint16_t>(sign | code);
}

inline double widened(uint16_t value, int exponent, int fraction) {
  const int bias = (1 << (exponent - 1)) - 1;
  const int power = value >> fraction & ((1 << exponent) - 1);
  const int rest = value & ((1 << fraction) - 1);
  double size = 0;
  if (power == (1 << exponent) - 1) {
    size = rest != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else {
    size = std::ldexp(power == 0 ? rest : rest + (1 << fraction), std::max(power, 1) - bias - fraction);
  }
  return (value & 0x8000) != 0 ? -size : size;
}

inline double wide(Half value) { return widened(value.bits, 5, 10); }
inline double wide(Brain value) { return widened(value.bits, 8, 7); }
inline double wide(float value) { return value; }
inline double wide(double value) { return value; }

template <class T> T rounded(double value, bool nearest = true) {
  if constexpr (std::is_same_v<T, Half>) {
    return {narrow(value, 5, 10, nearest)};
  } else if constexpr (std::is_same_v<T, Brain>) {
    return {narrow(value, 8, 7, nearest)};
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace epl::cuda_machine
