#include "core/base/spin.h"

#include <gtest/gtest.h>

namespace epl::spin_test {
namespace {

// What comes at the n-th look.
bool wait(Spin& spin, int n) {
  int looks = 0;
  return spin.until([&] { return ++looks >= n; });
}

TEST(Spin, PaysWhereItComesSoon) {
  Spin spin(1000);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(wait(spin, 900));
  EXPECT_EQ(spin.spins(), 1000);
}

TEST(Spin, IsGivenUpWhereItDoesNotCome) {
  Spin spin(1000);
  int64_t looks = 0;
  const auto never = [&] { return ++looks < 0; };
  for (int i = 0; i < 320; ++i) EXPECT_FALSE(spin.until(never));
  EXPECT_EQ(spin.spins(), Spin::min_spins);
  EXPECT_LT(looks, 320 * 1001 / 8) << "looking in vain is what a busy machine suffers from";
}

TEST(Spin, ComesBackWithinAFewWaits) {
  Spin spin(1000);
  for (int i = 0; i < 100; ++i) wait(spin, 1 << 30);
  int missed = 0;
  for (int i = 0; i < 100; ++i) missed += !wait(spin, 900);
  EXPECT_LT(missed, Spin::probe_every);
  EXPECT_EQ(spin.spins(), 1000);
}

TEST(Spin, OfNoLengthSleepsAtOnce) {
  Spin spin(0);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(wait(spin, 2));
  EXPECT_TRUE(wait(spin, 1)) << "it has come already";
}

}  // namespace
}  // namespace epl::spin_test
