// Angles: sin, cos and tan of any finite angle, and their inverses. See math.h.
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/base/math.h"

namespace epl::math {
namespace {

constexpr double half_pi = 0x1.921fb54442d18p+0, half_pi_low = 0x1.1a62633145c07p-54;  // two parts of pi/2

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

// The first 1280 bits of 2/pi after the point.
constexpr std::array<uint64_t, 20> two_over_pi = {
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0,
    0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4,
    0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d};

// 64 bits of 2/pi from bit `first` after the point on; those before the point are zero.
uint64_t bits_of_two_over_pi(int first) {
  const int word = first >= 0 ? first / 64 : -1, shift = first - 64 * word;
  const auto at = [](int i) { return i < 0 || i >= static_cast<int>(two_over_pi.size()) ? 0 : two_over_pi[i]; };
  return shift == 0 ? at(word) : at(word) << shift | at(word + 1) >> (64 - shift);
}

struct Quadrant {
  double r;   // what is left, in [-pi/4, pi/4]
  int turns;  // quarter turns taken off, modulo 4
};

// Large angles (Payne and Hanek): x 2/pi modulo 4 in integers, from the 192 bits of 2/pi that matter.
Quadrant reduce_large(double x) {
  int exponent;
  const auto m = static_cast<uint64_t>(std::ldexp(std::frexp(std::fabs(x), &exponent), 53));
  exponent -= 53;                  // |x| = m 2^exponent; bit i of 2/pi, from 0, has weight 2^(exponent - 1 - i)
  const int first = exponent - 2;  // the bit of weight 2
  std::array<uint64_t, 3> w = {bits_of_two_over_pi(first), bits_of_two_over_pi(first + 64),
                               bits_of_two_over_pi(first + 128)};
  unsigned __int128 carry = 0;
  for (int i = 2; i >= 0; --i) {
    carry += static_cast<unsigned __int128>(m) * w[i];
    w[i] = static_cast<uint64_t>(carry);
    carry >>= 64;
  }
  int turns = static_cast<int>(w[0] >> 62);
  for (int i = 0; i < 3; ++i) w[i] = w[i] << 2 | (i < 2 ? w[i + 1] >> 62 : 0);  // the fraction of a quarter turn
  double sign = 1;
  if (w[0] >> 63) {  // nearer to the next quarter turn: the rest is negative
    ++turns;
    sign = -1;
    for (uint64_t& word : w) word = ~word;  // but for a unit in the last of 190 places
  }
  const double fraction =
      static_cast<double>(w[0]) * 0x1p-64 + static_cast<double>(w[1]) * 0x1p-128 + static_cast<double>(w[2]) * 0x1p-192;
  if (x < 0) return {-sign * fraction * half_pi, -turns & 3};
  return {sign * fraction * half_pi, turns & 3};
}

Quadrant reduce(double x) {
  if (std::fabs(x) > 1e6) return reduce_large(x);
  const double k = std::floor(x * (2 / pi) + 0.5);
  return {((x - k * half_pi_1) - k * half_pi_2) - k * half_pi_3, static_cast<int>(static_cast<int64_t>(k) & 3)};
}

double sin_of(Quadrant a) {
  const double y = a.turns & 1 ? cos_small(a.r) : sin_small(a.r);
  return a.turns & 2 ? -y : y;
}

// The angles of tangents i/8, in two parts.
struct Angle {
  double high, low;
};
constexpr std::array<Angle, 9> eighths = {{{0, 0},
                                           {0x1.fd5ba9aac2f6ep-4, -0x1.cd37686760c17p-59},
                                           {0x1.f5b75f92c80ddp-3, 0x1.8ab6e3cf7afbdp-57},
                                           {0x1.6f61941e4def1p-2, -0x1.c63aae6f6e918p-56},
                                           {0x1.dac670561bb4fp-2, 0x1.a2b7f222f65e2p-56},
                                           {0x1.1e00babdefeb4p-1, -0x1.928df287a668fp-58},
                                           {0x1.4978fa3269ee1p-1, 0x1.2419a87f2a458p-56},
                                           {0x1.700a7c5784634p-1, -0x1.8c34d25aadef6p-56},
                                           {0x1.921fb54442d18p-1, 0x1.1a62633145c07p-55}}};

// The angle of a tangent in [0, 1]: that of the nearest eighth, and the rest by its series.
Angle small_atan(double x) {
  const int i = static_cast<int>(8 * x + 0.5);
  const double c = i / 8.0, t = (x - c) / (1 + x * c), z = t * t;
  double sum = 0;
  for (int n = 17; n >= 3; n -= 2) sum = z * (1.0 / n - sum);  // 1 - atan t / t
  if (i == 0) return {t, -t * sum};
  return {eighths[i].high, eighths[i].low + (t - t * sum)};
}

}  // namespace

double sin(double x) {
  if (x == 0) return x;
  return std::isfinite(x) ? sin_of(reduce(x)) : nan;
}

double cos(double x) {
  if (!std::isfinite(x)) return nan;
  const Quadrant a = reduce(x);
  return sin_of({a.r, a.turns + 1});
}

double tan(double x) {
  if (x == 0) return x;
  if (!std::isfinite(x)) return nan;
  const Quadrant a = reduce(x);
  return a.turns & 1 ? -cos_small(a.r) / sin_small(a.r) : sin_small(a.r) / cos_small(a.r);
}

// The angle of the point (x, y); zero over zero is a zero angle or half a turn.
double atan2(double y, double x) {
  if (std::isnan(x) || std::isnan(y)) return nan;
  const double ax = std::fabs(x), ay = std::fabs(y);
  const double big = ax > ay ? ax : ay, small = ax > ay ? ay : ax;
  const double ratio = big == 0 ? 0 : big == small ? 1 : small / big;
  Angle a = small_atan(ratio);
  if (ay > ax) a = {half_pi - a.high, (half_pi - (half_pi - a.high) - a.high) + (half_pi_low - a.low)};
  if (std::signbit(x)) a = {pi - a.high, (pi - (pi - a.high) - a.high) + (2 * half_pi_low - a.low)};
  return std::copysign(a.high + a.low, y);
}

double atan(double x) { return x == 0 ? x : atan2(x, 1); }
double asin(double x) { return x == 0 ? x : std::fabs(x) <= 1 ? atan2(x, std::sqrt((1 - x) * (1 + x))) : nan; }
double acos(double x) { return std::fabs(x) <= 1 ? 2 * atan2(std::sqrt(1 - x), std::sqrt(1 + x)) : nan; }

}  // namespace epl::math
