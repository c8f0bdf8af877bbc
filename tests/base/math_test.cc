#include "core/base/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace epl {
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

TEST(Math, PowerMultiplies) {
  EXPECT_EQ(math::power(3, 5), 243);
  EXPECT_EQ(math::power(2, -3), 0.125);
  EXPECT_EQ(math::power(0.9, 0), 1);
  EXPECT_EQ(math::power(0.5, 100), std::ldexp(1.0, -100));
  for (int n : {1, 7, 100, 1000}) EXPECT_NEAR(math::power(0.999, n) / std::pow(0.999, n), 1, 1e-16 * (n + 4));
}

}  // namespace
}  // namespace epl
