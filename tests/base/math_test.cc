#include "core/base/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace epl::math_test {
namespace {

// Distance in units in the last place of the expected number.
double ulps(double got, double expected) {
  if (got == expected) return 0;
  const double next = std::nextafter(std::fabs(expected), std::numeric_limits<double>::infinity());
  return std::fabs(got - expected) / (next - std::fabs(expected));
}

TEST(Math, ExpIsWithinTwoUlp) {
  std::mt19937_64 random(1);
  for (double range : {1e-9, 0.5, 20.0, 700.0}) {
    std::uniform_real_distribution<double> x(-range, range);
    for (int i = 0; i < 50000; ++i) {
      const double at = x(random);
      ASSERT_LE(ulps(math::exp(at), std::exp(at)), 2) << at;
    }
  }
  EXPECT_EQ(math::exp(0), 1);
  EXPECT_EQ(math::exp(1000), std::numeric_limits<double>::infinity());
  EXPECT_EQ(math::exp(-1000), 0);
}

TEST(Math, LogIsWithinTwoUlp) {
  std::mt19937_64 random(2);
  for (double range : {1e-6, 0.1, 3.0, 700.0}) {
    std::uniform_real_distribution<double> x(-range, range);
    for (int i = 0; i < 50000; ++i) {
      const double at = std::exp(x(random));
      ASSERT_LE(ulps(math::log(at), std::log(at)), 2) << at;
    }
  }
  EXPECT_EQ(math::log(1), 0);
  EXPECT_EQ(math::log(0), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(math::log(-1)));
}

TEST(Math, CosIsWithinTwoUlp) {
  std::mt19937_64 random(3);
  for (double range : {0.1, 3.2, 100.0, 1e5}) {
    std::uniform_real_distribution<double> x(-range, range);
    for (int i = 0; i < 50000; ++i) {
      const double at = x(random);
      ASSERT_LE(ulps(math::cos(at), std::cos(at)), 2) << at;
    }
  }
  EXPECT_EQ(math::cos(0), 1);
  EXPECT_EQ(math::cos(math::pi), -1);
  EXPECT_LE(ulps(math::cos(math::pi / 2), std::cos(math::pi / 2)), 2);
}

struct OneNumber {
  const char* name;
  double (*ours)(double);
  long double (*theirs)(long double);
  double low, high;  // the arguments
  double ulp = 4;
};

// The C library's functions of 80 bits are the oracle.
const OneNumber functions[] = {
    {"exp", math::exp, std::exp, -740, 709, 2},    {"expm1", math::expm1, std::expm1, -45, 709},
    {"expm1", math::expm1, std::expm1, -1, 1},     {"log", math::log, std::log, 0, 3, 2},
    {"log1p", math::log1p, std::log1p, -0.999, 3}, {"erf", math::erf, std::erf, -7, 7, 8},
    {"sin", math::sin, std::sin, -4, 4},           {"sin", math::sin, std::sin, -1e15, 1e15},
    {"cos", math::cos, std::cos, -1e15, 1e15},     {"tan", math::tan, std::tan, -4, 4},
    {"asin", math::asin, std::asin, -1, 1},        {"acos", math::acos, std::acos, -1, 1},
    {"atan", math::atan, std::atan, -9, 9},        {"sinh", math::sinh, std::sinh, -30, 30},
    {"sinh", math::sinh, std::sinh, 700, 710},     {"cosh", math::cosh, std::cosh, -30, 710},
    {"tanh", math::tanh, std::tanh, -3, 3},        {"asinh", math::asinh, std::asinh, -9, 1e12},
    {"acosh", math::acosh, std::acosh, 1, 9},      {"atanh", math::atanh, std::atanh, -1, 1},
};

TEST(Math, FunctionsAreWithinTheirUlp) {
  std::mt19937_64 random(4);
  for (const OneNumber& f : functions) {
    std::uniform_real_distribution<double> x(f.low, f.high);
    for (int i = 0; i < 20000; ++i) {
      double at = x(random);
      if (i % 4 == 0) at = f.low <= 0 && f.high >= 0 ? at * std::exp2(-static_cast<double>(random() % 60)) : at;
      ASSERT_LE(ulps(f.ours(at), static_cast<double>(f.theirs(at))), f.ulp) << f.name << "(" << at << ")";
    }
  }
}

TEST(Math, SpecialArgumentsAreThoseOfIeee754) {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const double specials[] = {0.0,    -0.0, 1,    -1,    2,     -2,     3,      -3,   0.5,  -0.5,
                             0.0625, inf,  -inf, nan,   1e300, -1e300, 5e-324, 22.5, 6.25, -1e-310,
                             0x1p53, 1e20, -2.5, 709.5, 1e-17, -700,   -50.5,  800};
  const auto agree = [](double a, double b) {
    return (std::isnan(a) && std::isnan(b)) || (std::signbit(a) == std::signbit(b) && ulps(a, b) <= 4);
  };
  for (double x : specials) {
    for (const OneNumber& f : functions) {
      const auto want = static_cast<double>(f.theirs(x));
      EXPECT_TRUE(agree(f.ours(x), want)) << f.name << "(" << x << ") = " << f.ours(x) << ", expected " << want;
    }
    for (double y : specials) {
      EXPECT_TRUE(agree(math::pow(x, y), std::pow(x, y))) << "pow(" << x << ", " << y << ") = " << math::pow(x, y);
      EXPECT_TRUE(agree(math::atan2(x, y), std::atan2(x, y)))
          << "atan2(" << x << ", " << y << ") = " << math::atan2(x, y);
    }
  }
}

TEST(Math, PowIsWithinFourUlp) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> logarithm(-20, 20), exponent(-30, 30);
  for (int i = 0; i < 50000; ++i) {
    const double x = std::exp(logarithm(random)), y = exponent(random);
    const auto want = static_cast<double>(std::pow(static_cast<long double>(x), static_cast<long double>(y)));
    ASSERT_LE(ulps(math::pow(x, y), want), 4) << x << " to the power of " << y;
  }
}

TEST(Math, PowerMultiplies) {
  EXPECT_EQ(math::power(3, 5), 243);
  EXPECT_EQ(math::power(2, -3), 0.125);
  EXPECT_EQ(math::power(0.9, 0), 1);
  EXPECT_EQ(math::power(0.5, 100), std::ldexp(1.0, -100));
  for (int n : {1, 7, 100, 1000}) EXPECT_NEAR(math::power(0.999, n) / std::pow(0.999, n), 1, 1e-16 * (n + 4));
}

}  // namespace
}  // namespace epl::math_test
