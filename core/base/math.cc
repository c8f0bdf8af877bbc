#include "core/base/math.h"

#include <cmath>
#include <limits>

namespace epl::math {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// ln 2 in two parts: the first has 32 trailing zero bits, so that small integers times it are exact.
constexpr double ln2_high = 0x1.62e42feep-1;
constexpr double ln2_low = 0x1.a39ef35793c76p-33;

// pi/2 in three parts of at most 33 bits, for exact products with integers up to 2^20.
constexpr double half_pi_1 = 0x1.921fb544p+0;
constexpr double half_pi_2 = 0x1.0b4611a6p-34;
constexpr double half_pi_3 = 0x1.3198a2e037073p-69;

// sin and cos on [-pi/4, pi/4] by their Taylor series, whose next terms are below 2^-56 there.
double sin_small(double x) {
  const double z = x * x;
  double sum = 0;
  for (int n = 17; n >= 3; n -= 2) sum = z * (1 + sum) / -(static_cast<double>(n) * (n - 1));
  return x + x * sum;
}

double cos_small(double x) {
  const double z = x * x;
  double sum = 0;
  for (int n = 18; n >= 4; n -= 2) sum = z * (1 + sum) / -(static_cast<double>(n) * (n - 1));
  // 1 - z/2 (1 + sum), with the rounding of the first difference put back.
  const double half = 0.5 * z, near = 1 - half;
  return near + ((1 - near) - half - half * sum);
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
  const double whole = static_cast<double>(k);
  return whole * ln2_high - ((half - (s * (half + r) + whole * ln2_low)) - f);
}

double cos(double x) {
  if (!(std::fabs(x) <= 1e6)) return nan;
  const double k = std::floor(x * (2 / pi) + 0.5);
  const double r = ((x - k * half_pi_1) - k * half_pi_2) - k * half_pi_3;
  switch (static_cast<int64_t>(k) & 3) {
    case 0:
      return cos_small(r);
    case 1:
      return -sin_small(r);
    case 2:
      return -cos_small(r);
    default:
      return sin_small(r);
  }
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
