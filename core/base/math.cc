#include "core/base/math.h"

#include <cmath>
#include <limits>

namespace epl::math {
namespace {

// ln 2 in two parts: the first has 32 trailing zero bits, so that small integers times it are exact.
constexpr double ln2_high = 0x1.62e42feep-1;
constexpr double ln2_low = 0x1.a39ef35793c76p-33;

// log x as a sum of two doubles, good to about 2^-60: its exponentials lose nothing.
struct TwoDoubles {
  double high, low;
};
TwoDoubles long_log(double x) {
  int k;
  double m = std::frexp(x, &k);  // in [0.5, 1)
  if (m < 0.70710678118654752) {
    m *= 2;
    --k;
  }
  // log m = 2 (s + s^3/3 + s^5/5 + ...), s = f / (2 + f) with what rounding took from it.
  const double f = m - 1, d = 2 + f, d_low = f - (d - 2);
  const double s = f / d, s_low = (std::fma(-s, d, f) - s * d_low) / d, z = s * s;
  double tail = 0;
  for (int n = 25; n >= 3; n -= 2) tail = z * (2.0 / n + tail);
  const double big = k * ln2_high, high = big + 2 * s;
  const double lost = k == 0 ? 0 : 2 * s - (high - big);  // |2s| < |k ln 2|
  const double rest = lost + (2 * s_low + s * tail + k * ln2_low), sum = high + rest;
  return {sum, rest - (sum - high)};
}

}  // namespace

double exp(double x) {
  if (std::isnan(x)) return x;
  if (x > 709.79) return infinity;
  if (x < -745.2) return 0;
  // x = k ln2 + r with |r| <= ln2 / 2.
  const double k = std::floor(x * 1.4426950408889634 + 0.5);
  const double high = x - k * ln2_high, low = k * ln2_low;
  const double r = high - low;
  const double error = (high - r) - low;  // what rounding r lost
  double sum = 0;                         // (e^r - 1 - r) / r by Taylor
  for (int n = 14; n >= 2; --n) sum = r * (1 + sum) / n;
  return std::ldexp(1 + (r + (error + r * sum)), static_cast<int>(k));
}

double log(double x) {
  if (std::isnan(x) || x < 0) return nan;
  if (x == 0) return -infinity;
  if (x == infinity) return x;
  int k;
  double m = std::frexp(x, &k);  // in [0.5, 1)
  if (m < 0.70710678118654752) {
    m *= 2;
    --k;
  }
  // log m = 2 atanh(s) = 2s + s R, s = f / (2 + f); written as f - (f^2/2 - s (f^2/2 + R)) so that f stays exact.
  const double f = m - 1, s = f / (2 + f), z = s * s;
  double r = 0;
  for (int n = 23; n >= 3; n -= 2) r = z * (2.0 / n + r);
  const double half = 0.5 * f * f;
  const double multiple = static_cast<double>(k);
  return multiple * ln2_high - ((half - (s * (half + r) + multiple * ln2_low)) - f);
}

double expm1(double x) {
  if (std::isnan(x) || x == 0) return x;
  if (x > 709.79) return infinity;
  if (x < -50) return -1;
  // As for exp, with the 1 left apart.
  const double k = std::floor(x * 1.4426950408889634 + 0.5);
  const double high = x - k * ln2_high, low = k * ln2_low;
  const double r = high - low;
  const double error = (high - r) - low;
  double sum = 0;
  for (int n = 15; n >= 2; --n) sum = r * (1 + sum) / n;
  const double small = r + (error + r * sum);
  if (k == 0) return small;
  if (k > 1022) return std::ldexp(1 + small, static_cast<int>(k));
  return std::ldexp(small, static_cast<int>(k)) + (std::ldexp(1, static_cast<int>(k)) - 1);
}

double log1p(double x) {
  if (!(x > -1)) return log(1 + x);
  if (std::fabs(x) < 0x1p-54 || x == infinity) return x;
  const double u = 1 + x;
  const double lost = x < 1 ? x - (u - 1) : 1 - (u - x);  // what rounding took from 1 + x (Kahan)
  return log(u) + lost / u;
}

double pow(double x, double y) {
  if (y == 0 || x == 1) return 1;
  if (std::isnan(x) || std::isnan(y)) return nan;
  const double ax = std::fabs(x);
  const bool integral = std::floor(y) == y, odd = integral && std::fabs(std::fmod(y, 2)) == 1;
  const double sign = std::signbit(x) && odd ? -1 : 1;
  if (std::isinf(y)) return ax == 1 ? 1 : (ax > 1) == (y > 0) ? infinity : 0;
  if (ax == 0 || ax == infinity) return sign * ((ax == 0) == (y > 0) ? 0 : infinity);
  if (x < 0 && !integral) return nan;
  const TwoDoubles l = long_log(ax);
  const double p = y * l.high;
  if (p > 710) return sign * infinity;
  if (p < -746) return sign * 0.0;
  const double low = std::fma(y, l.high, -p) + y * l.low;
  const double e = exp(p);
  return sign * (std::isinf(e) ? e : e + e * low);
}

double erf(double x) {
  const double t = std::fabs(x);
  if (std::isnan(x) || t < 1e-18) return x * 1.1283791670955126;
  if (t >= 6) return std::copysign(1, x);
  const double s = t * t, s_low = std::fma(t, t, -s);
  const double gauss = exp(-s) * (1 - s_low);
  if (t < 1.5) {
    // Kummer's series, whose terms are all positive: erf x = 2x/sqrt(pi) exp(-x^2) (1 + 2x^2/3 (1 + 2x^2/5 (1 + ...))).
    double sum = 1;
    for (int n = 63; n >= 3; n -= 2) sum = 1 + 2 * s * sum / n;
    return 1.1283791670955126 * x * (gauss * sum);
  }
  // 1 - erf x = exp(-x^2) / sqrt(pi) / (x + (1/2) / (x + (2/2) / (x + (3/2) / ...))), Laplace's continued fraction.
  double fraction = t;
  for (int n = t < 2 ? 150 : 60; n >= 1; --n) fraction = t + 0.5 * n / fraction;
  return std::copysign(1 - gauss * 0.56418958354775629 / fraction, x);
}

double sigmoid(double x) {
  const double e = exp(-std::fabs(x));  // no overflow, and full relative precision on both sides
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

double sinh(double x) {
  const double t = std::fabs(x);
  if (!(t > 0) || t == infinity) return x;
  if (t < 22) {
    const double e = expm1(t);
    return std::copysign(0.5 * (e + e / (e + 1)), x);
  }
  const double half = exp(0.5 * t);
  return std::copysign(t < 709 ? 0.5 * exp(t) : 0.5 * half * half, x);
}

double cosh(double x) {
  const double t = std::fabs(x), e = exp(t < 709 ? t : 0.5 * t);
  return t < 709 ? 0.5 * e + 0.5 / e : 0.5 * e * e;
}

double tanh(double x) {
  const double t = std::fabs(x);
  if (!(t > 0)) return x;
  if (t >= 22) return std::copysign(1, x);
  const double e = expm1(2 * t);
  return std::copysign(t < 1 ? e / (e + 2) : 1 - 2 / (e + 2), x);
}

double asinh(double x) {
  const double t = std::fabs(x);
  if (!(t > 0) || t == infinity) return x;
  const double s = t * t;
  return std::copysign(t < 1e8 ? log1p(t + s / (1 + std::sqrt(s + 1))) : log(t) + ln2_high + ln2_low, x);
}

double acosh(double x) {
  const double t = x - 1;
  if (!(t >= 0)) return nan;
  return x < 1e8 ? log1p(t + std::sqrt(2 * t + t * t)) : log(x) + ln2_high + ln2_low;
}

double atanh(double x) {
  const double t = std::fabs(x);
  return t > 0 ? std::copysign(0.5 * log1p(2 * t / (1 - t)), x) : x;
}

double power(double base, int64_t exponent) {
  if (exponent < 0) return 1 / power(base, -exponent);
  double result = 1;
  for (uint64_t e = static_cast<uint64_t>(exponent); e != 0; e >>= 1, base *= base) {
    if (e & 1) result *= base;
  }
  return result;
}

}  // namespace epl::math
