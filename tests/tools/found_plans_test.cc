// Which numbers of devices epl plan --devices means, and where more of them stop to pay.
#include "tools/found_plans.h"

#include <gtest/gtest.h>

namespace epl::tools::found_plans_test {
namespace {

TEST(DeviceCounts, AreAListOrDoubled) {
  EXPECT_EQ(device_counts("4"), (std::vector<int64_t>{4}));
  EXPECT_EQ(device_counts("6,1,2,2"), (std::vector<int64_t>{1, 2, 6}));
  EXPECT_EQ(device_counts("1..8"), (std::vector<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(device_counts("3..10"), (std::vector<int64_t>{3, 6, 10}));
  EXPECT_EQ(device_counts("5..5"), (std::vector<int64_t>{5}));
  EXPECT_EQ(device_counts("4096..16384"), (std::vector<int64_t>{4096, 8192, 16384}));
}

TEST(DeviceCounts, RefuseWhatIsNoNumber) {
  for (const char* text : {"", "0", "1..", "..8", "8..1", "1,", "a", "-1", "1...4", "1..99999", "16385"})
    EXPECT_THROW(device_counts(text), UsageError) << text;
}

TEST(WorthOfDevices, EndsWhereAStepIsHardlyShorter) {
  EXPECT_EQ(worth_of_devices({{1, 8}, {2, 4}, {4, 2.1}, {8, 2}}), 4);
  EXPECT_EQ(worth_of_devices({{1, 8}, {2, 4}}), 2);
  EXPECT_EQ(worth_of_devices({{1, 8}, {2, 9}, {4, 1}}), 4);
  EXPECT_EQ(worth_of_devices({{1, 8}, {2, 7.5}, {4, 7.3}, {8, 7}}), 8);
  EXPECT_EQ(worth_of_devices({{3, 1}}), 3);
}

}  // namespace
}  // namespace epl::tools::found_plans_test
