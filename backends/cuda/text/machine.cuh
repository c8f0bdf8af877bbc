// What the texts for a GPU find instead of the C++ library: integers, and the functions of <cmath> and <bit> that our
// sources use. Each of them is exact or rounds once, on a GPU as on the host.
#pragma once

#ifdef __CUDACC_RTC__
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
#define INT64_MAX 0x7fffffffffffffffLL
#define INT64_MIN (-INT64_MAX - 1)

// Of the host's compiler, which the texts that are shared with it use.
#define __builtin_inff() __builtin_bit_cast(float, 0x7f800000)
#define __builtin_nanf(text) __builtin_bit_cast(float, 0x7fc00000)
#define __builtin_sqrtf(x) __fsqrt_rn(x)
#define __builtin_fmaf(a, b, c) __fmaf_rn(a, b, c)
#define __builtin_fmodf(a, b) ::fmodf(a, b)
#define __builtin_fmod(a, b) ::fmod(a, b)

namespace std {
template <class To, class From> To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}
template <class T> struct numeric_limits;
template <> struct numeric_limits<double> {
  static constexpr double infinity() { return __builtin_bit_cast(double, 0x7ff0000000000000LL); }
  static constexpr double quiet_NaN() { return __builtin_bit_cast(double, 0x7ff8000000000000LL); }
};
template <class T, int n> struct array {
  T values[n];
  constexpr T& operator[](int64_t i) { return values[i]; }
  constexpr const T& operator[](int64_t i) const { return values[i]; }
  constexpr int size() const { return n; }
  constexpr T* begin() { return values; }
  constexpr T* end() { return values + n; }
};
inline float fabs(float x) { return ::fabsf(x); }
inline double fabs(double x) { return ::fabs(x); }
inline bool isnan(double x) { return x != x; }
inline bool isinf(double x) { return ::fabs(x) == numeric_limits<double>::infinity(); }
inline bool isfinite(double x) { return ::fabs(x) < numeric_limits<double>::infinity(); }
inline bool signbit(double x) { return bit_cast<int64_t>(x) < 0; }
inline double floor(double x) { return ::floor(x); }
inline double sqrt(double x) { return __dsqrt_rn(x); }
inline double fma(double a, double b, double c) { return __fma_rn(a, b, c); }
inline double fmod(double a, double b) { return ::fmod(a, b); }
inline double copysign(double a, double b) { return ::copysign(a, b); }
inline double frexp(double x, int* exponent) { return ::frexp(x, exponent); }
inline double ldexp(double x, int exponent) { return ::ldexp(x, exponent); }
inline float nearbyintf(float x) { return ::rintf(x); }
}  // namespace std
#endif

// How the code of the host names the level of a processor, and what it says to its compiler.
#define EPL_SIMD gpu
#define HWY_INLINE inline
#define HWY_ATTR
#define HWY_ALIGN
#define HWY_NAMESPACE one_lane
#define HWY_NOINLINE inline
#define HWY_MAYBE_UNUSED
#define HWY_BEFORE_NAMESPACE() static_assert(true, "")
#define HWY_AFTER_NAMESPACE() static_assert(true, "")
#define HWY_HAVE_FLOAT64 1
#define HWY_HAVE_INTEGER64 1

// What is written behind the texts uses this space.
namespace epl::cuda {}
