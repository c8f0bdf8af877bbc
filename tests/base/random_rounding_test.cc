// Rounding at random: every value is met exactly on average, and draws are even and independent of one another.
#include "core/base/random_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/base/dtype.h"

namespace epl::random_rounding_test {
namespace {

double widened(uint16_t half) { return load_double(DType::bf16, &half, 0); }

// Over all draws: no approximation.
TEST(RandomRounding, MeetsEachValueOnAverage) {
  std::vector<float> values = {1.0f, 1.5f, 3.14159f, -2.71828f, 1e-3f, 1.99999f, 1e30f, -1e-30f, 1e-39f, 0.0f};
  for (uint64_t i = 0; i < 200; ++i) {
    const uint32_t bits = philox_bits(1, i);
    if ((bits >> 23 & 0xff) < 0xfe) values.push_back(std::bit_cast<float>(bits));
  }
  for (const float value : values) {
    double sum = 0;
    for (uint32_t draw = 0; draw < 0x10000; ++draw) sum += widened(bf16_at_random(value, draw)) / 0x10000;
    EXPECT_NEAR(sum, value, std::fabs(value) * 1e-12) << value;
  }
}

TEST(RandomRounding, KeepsWhatBf16CanHold) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const auto value = static_cast<float>(widened(static_cast<uint16_t>(half)));
    for (const uint32_t draw : {0u, 1u, 0x8000u, 0xffffu}) {
      const uint16_t rounded = bf16_at_random(value, draw);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(widened(rounded)));
      } else {
        EXPECT_EQ(rounded, half) << draw;
      }
    }
  }
  const float quiet = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(widened(bf16_at_random(quiet, 0xffff))));
}

// Two draws of an element are even and independent, and so are those of two tensors of one shape.
TEST(RandomRounding, DrawsEvenly) {
  constexpr int count = 1 << 16;
  constexpr double even = 32767.5;  // the mean of 16 bits
  double low = 0, high = 0, together = 0, tensors = 0, neighbours = 0, before = even;
  for (uint32_t i = 0; i < count; ++i) {
    const float beside = philox_uniform(8, i), other = philox_uniform(9, i);
    const uint32_t bits = rounding_bits(5, element_number(i / 256, i % 256), beside),
                   there = rounding_bits(5, element_number(i / 256, i % 256), other);
    const double a = bits & 0xffff, b = bits >> 16, c = there & 0xffff;
    low += a / count;
    high += b / count;
    together += (a - even) * (b - even) / count;
    tensors += (a - even) * (c - even) / count;
    neighbours += (a - even) * (before - even) / count;
    before = a;
  }
  const double deviation = 65536 / std::sqrt(12.0), of_mean = deviation / std::sqrt(count);
  EXPECT_NEAR(low, even, 4 * of_mean);
  EXPECT_NEAR(high, even, 4 * of_mean);
  for (const double covariance : {together, tensors, neighbours})
    EXPECT_NEAR(covariance / (deviation * deviation), 0, 4 / std::sqrt(count));
}

}  // namespace
}  // namespace epl::random_rounding_test
