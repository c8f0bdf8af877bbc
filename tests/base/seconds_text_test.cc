// Times as people read them, from seconds to nanoseconds.
#include "core/base/seconds_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace epl {
namespace {

TEST(SecondsText, HasAUnitForEachSize) {
  EXPECT_EQ(seconds_text(12.3456), "12.35 s");
  EXPECT_EQ(seconds_text(0.0023149), "2.31 ms");
  EXPECT_EQ(seconds_text(16.72e-6), "16.7 us");
  EXPECT_EQ(seconds_text(12.5e-9), "12.5 ns");
  EXPECT_EQ(seconds_text(0), "0.0 us");
  EXPECT_EQ(seconds_text(std::numeric_limits<double>::infinity()), "inf s");
}

}  // namespace
}  // namespace epl
