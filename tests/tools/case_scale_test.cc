// What errors of `epl check` count against: rounding of what is zero in truth is none, and a real fault is one.
#include "tools/case_scale.h"

#include <gtest/gtest.h>

#include <limits>

namespace epl::tools::case_scale_test {
namespace {

constexpr double tolerance = 1e-3;  // of norms, in float32

TEST(CaseScale, AValueCountsAgainstItself) {
  const Scale scale(Norms{{"a", 10.0}, {"b", 1e-4}});
  EXPECT_NEAR(scale.error(10.02, 10), 0.002, 1e-12);
  EXPECT_DOUBLE_EQ(scale.error(2e-4, 1e-4), 1) << "small beside the others, but no rounding";
  EXPECT_FALSE(scale.is_zero(1e-4));
}

TEST(CaseScale, WhatIsZeroInTruthCountsAgainstItsKind) {
  const Scale scale(Norms{{"weight", 10.0}, {"bias", 1e-13}});
  EXPECT_TRUE(scale.is_zero(1e-13));
  EXPECT_LT(scale.error(1e-6, 1e-13), tolerance) << "rounding of float32";
  EXPECT_LT(scale.error(0, 1e-13), tolerance);
  EXPECT_GT(scale.error(1e-4, 1e-13), tolerance) << "what should be zero is not";
  EXPECT_GT(scale.error(10, 1e-13), tolerance);
  EXPECT_FALSE(scale.error(std::numeric_limits<double>::quiet_NaN(), 1e-13) <= tolerance);
}

TEST(CaseScale, AStatisticCountsAgainstThoseOfItsNorm) {
  const Norms all = {{"bn1.running_mean", 1e-13}, {"bn1.running_var", 4.0},    {"bn2.running_mean", 1e-5},
                     {"bn2.running_var", 1e-4},   {"bn3.running_mean", 1e-13}, {"bn3.running_var", 1e-8},
                     {"far.running_mean", 1e6},   {"far.running_var", 1e12}};
  const auto error = [&](const char* name, double ours) {
    return scale_of_statistic(all, name).error(ours, all.at(name));
  };
  EXPECT_LT(error("bn1.running_mean", 1e-6), tolerance);
  EXPECT_GT(error("bn1.running_mean", 1e-4), tolerance) << "whatever others have";
  EXPECT_GT(error("bn2.running_mean", 1.01e-5), tolerance) << "a small mean is not zero";
  EXPECT_LT(error("bn3.running_mean", 5e-11), tolerance);
  EXPECT_GT(error("bn3.running_mean", 1e-6), tolerance) << "of a norm whose deviation is 1e-4";
  EXPECT_GT(error("bn1.running_var", 4.01), tolerance);
}

TEST(CaseScale, WhereAllIsZeroNothingIsForgiven) {
  const Scale scale(Norms{{"a", 0.0}});
  EXPECT_EQ(scale.error(0, 0), 0);
  EXPECT_GT(scale.error(1e-6, 0), tolerance);
}

}  // namespace
}  // namespace epl::tools::case_scale_test
