// Conversion of samples: every pair of element types, exactly or not at all.
#include "core/data/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace epl::convert_test {
namespace {

constexpr DType all_types[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8,  DType::i16,    DType::i32,
                               DType::i64, DType::u8,  DType::u16, DType::u32,  DType::u64, DType::boolean};

// One value of type `from` as type `to`, or the error.
Result<double> convert(DType from, double value, DType to) {
  alignas(8) std::byte source[8] = {}, target[8] = {};
  store_double(from, source, 0, value);
  EPL_TRY(convert_elements(from, source, to, target, 1));
  return load_double(to, target, 0);
}

TEST(Convert, SmallIntegersAreKeptBetweenAllTypes) {
  for (const DType from : all_types) {
    for (const DType to : all_types) {
      for (const double value : {0.0, 1.0}) {
        auto result = convert(from, value, to);
        ASSERT_TRUE(result.ok()) << dtype_name(from) << " " << dtype_name(to) << ": " << result.status().to_string();
        EXPECT_EQ(*result, value) << dtype_name(from) << " " << dtype_name(to);
      }
      if (from == DType::boolean || to == DType::boolean) continue;
      EXPECT_EQ(*convert(from, 100, to), 100) << dtype_name(from) << " " << dtype_name(to);
    }
  }
}

TEST(Convert, WhatATypeCannotHoldIsNamed) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::tuple<DType, double, DType, std::string>> refused = {
      {DType::f32, 3.75, DType::i64, "the value is 3.75, which i64 cannot hold: it is not an integer"},
      {DType::f64, -1, DType::u8, "-1.0, which u8 cannot hold"},
      {DType::f64, 256, DType::u8, "256"},
      {DType::f64, 9223372036854775808.0, DType::i64, "cannot hold"},
      {DType::f64, nan, DType::i32, "nan"},
      {DType::f64, inf, DType::i32, "inf"},
      {DType::f32, 16777218, DType::i64, "does not have every integer"},
      {DType::f16, 2050, DType::i64, "does not have every integer"},
      {DType::i64, 300, DType::i8, "300"},
      {DType::i64, -1, DType::u64, "-1"},
      {DType::f64, 1e300, DType::f32, "too large"},
      {DType::f32, 70000, DType::f16, "too large"},
      {DType::i32, 2, DType::boolean, "neither 0 nor 1"},
  };
  for (const auto& [from, value, to, message] : refused) {
    auto result = convert(from, value, to);
    ASSERT_FALSE(result.ok()) << dtype_name(from) << " " << value << " " << dtype_name(to);
    EXPECT_NE(result.status().message().find(message), std::string::npos) << result.status().message();
  }
  uint64_t large = std::numeric_limits<uint64_t>::max();
  int64_t out = 0;
  EXPECT_FALSE(convert_elements(DType::u64, &large, DType::i64, &out, 1).ok());
}

TEST(Convert, LimitsAreInside) {
  for (const auto& [to, low, high] :
       std::vector<std::tuple<DType, double, double>>{{DType::i8, -128, 127},
                                                      {DType::i16, -32768, 32767},
                                                      {DType::i32, -2147483648.0, 2147483647.0},
                                                      {DType::u8, 0, 255},
                                                      {DType::u16, 0, 65535},
                                                      {DType::u32, 0, 4294967295.0}}) {
    for (const DType from : {DType::f64, DType::i64}) {
      EXPECT_EQ(*convert(from, low, to), low) << dtype_name(to);
      EXPECT_EQ(*convert(from, high, to), high) << dtype_name(to);
      EXPECT_FALSE(convert(from, low - 1, to).ok()) << dtype_name(to);
      EXPECT_FALSE(convert(from, high + 1, to).ok()) << dtype_name(to);
    }
  }
}

TEST(Convert, RealNumbersRoundToTheNearestAndKeepWhatIsNotFinite) {
  EXPECT_EQ(*convert(DType::f64, 0.1, DType::f32), static_cast<double>(0.1f));
  EXPECT_EQ(*convert(DType::i64, 16777217, DType::f32), 16777216);
  EXPECT_TRUE(std::isnan(*convert(DType::f64, std::nan(""), DType::f32)));
  EXPECT_TRUE(std::isinf(*convert(DType::f64, -HUGE_VAL, DType::f16)));
}

}  // namespace
}  // namespace epl::convert_test
