// Which of the ways to keep to a budget is taken, over made-up peaks: more budget never takes longer, and less never
// has a higher peak, in whatever order exact peaks stand.
#include "core/compile/budget_ways.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace epl::budget_ways_test {
namespace {

using Rule = Result<std::optional<WayTaken>> (*)(const WaysWithin&);

struct Way {
  double seconds = 0;
  int64_t peak = 0;
};

constexpr double none = std::numeric_limits<double>::infinity();

// As a plan is fitted: nothing is taken where the last way does not fit.
Way taken(Rule rule, const std::vector<Way>& ways, int64_t budget, double most_seconds = none) {
  const Way nothing{none, std::numeric_limits<int64_t>::max()};
  if (ways.back().peak > budget) return nothing;
  size_t weighed = 0;
  const auto is_fast = [&](const Way& way) { return way.seconds < most_seconds; };
  const auto found = rule({.count = ways.size(),
                           .fast = static_cast<size_t>(std::ranges::count_if(ways, is_fast)),
                           .budget = budget,
                           .least = ways.back().peak,
                           .weigh = [&](size_t way) -> Result<int64_t> {
                             ++weighed;
                             return ways[way].peak;
                           }});
  EXPECT_TRUE(found.ok());
  EXPECT_LT(weighed, ways.size());  // the last one is known
  if (!found.ok() || !found->has_value()) return nothing;
  const Way& way = ways[(*found)->way];
  EXPECT_EQ((*found)->peak, way.peak);
  EXPECT_LE(way.peak, budget);
  EXPECT_LT(way.seconds, most_seconds);
  return way;
}

std::vector<Way> with_peaks(const std::vector<int64_t>& peaks, double first = 0, double apart = 1) {
  std::vector<Way> ways;
  for (const int64_t peak : peaks) ways.push_back({first + apart * static_cast<double>(ways.size()), peak});
  return ways;
}

// Peaks that roughly fall, as if drawn; the last one is anywhere near the end.
std::vector<int64_t> drawn(uint64_t seed, size_t count) {
  std::vector<int64_t> peaks;
  uint64_t state = seed * 2654435761 + 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    peaks.push_back(200 - static_cast<int64_t>(10 * i) + static_cast<int64_t>(state >> 33) % 40);
  }
  return peaks;
}

TEST(BudgetWays, TakeTheFirstThatFits) {
  const auto ways = with_peaks({1000, 1003, 1001, 900});
  EXPECT_EQ(taken(first_within, ways, 1003).peak, 1000);
  EXPECT_EQ(taken(first_within, ways, 1002).peak, 1000);
  EXPECT_EQ(taken(first_within, ways, 999).peak, 900);
  EXPECT_EQ(taken(first_within, ways, 899).seconds, none);
  // By halves the second way is asked first, and where it does not fit the first one is not looked at.
  EXPECT_EQ(taken(within_by_halves, ways, 1003).peak, 1000);
  EXPECT_EQ(taken(within_by_halves, ways, 1002).peak, 1001);
}

TEST(BudgetWays, TooSlowAreNoneOfUse) {
  const auto ways = with_peaks({1000, 990, 900});
  for (const Rule rule : {first_within, within_by_halves}) {
    EXPECT_EQ(taken(rule, ways, 995, 2).seconds, 1);
    EXPECT_EQ(taken(rule, ways, 995, 1).seconds, none);
    EXPECT_EQ(taken(rule, ways, 950, 2).seconds, none);
    EXPECT_EQ(taken(rule, ways, 950, 2.5).seconds, 2);
    EXPECT_EQ(taken(rule, with_peaks({900}), 900).peak, 900);
  }
}

TEST(BudgetWays, ErrorsOfAWayAreTheResult) {
  const auto fails = [](size_t) -> Result<int64_t> { return Status(Code::cancelled, "stopped"); };
  for (const Rule rule : {first_within, within_by_halves}) {
    const auto found = rule({.count = 3, .fast = 3, .budget = 10, .least = 10, .weigh = fails});
    EXPECT_EQ(found.status().code(), Code::cancelled);
  }
}

// Several lists are several combinations of keys, of which the fastest way counts.
TEST(BudgetWays, AreMonotoneInTheBudget) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<std::vector<Way>> lists = {with_peaks(drawn(seed, 9)), with_peaks(drawn(seed + 1000, 6), 0.5, 2),
                                                 with_peaks(drawn(seed + 2000, 12), 3.25, 0.5)};
    for (size_t used = 1; used <= lists.size(); ++used) {
      Way before{none, -1};  // with one byte less
      int fitting = 0;
      for (int64_t budget = 80; budget <= 260; ++budget) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << used << " lists, budget " << budget);
        Way best{none, -1};
        for (size_t list = 0; list < used; ++list) {
          const Way way = taken(first_within, lists[list], budget, best.seconds);
          if (way.seconds < best.seconds) best = way;
        }
        ASSERT_LE(best.seconds, before.seconds);
        ASSERT_GE(best.peak, before.peak);
        fitting += best.seconds < none;
        before = best;
      }
      EXPECT_GT(fitting, 0);
    }
  }
}

TEST(BudgetWays, ByHalvesMoreBudgetNeverTakesLonger) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto ways = with_peaks(drawn(seed, 12));
    double before = none;
    for (int64_t budget = 80; budget <= 260; ++budget) {
      const double seconds = taken(within_by_halves, ways, budget).seconds;
      ASSERT_LE(seconds, before) << "seed " << seed << ", budget " << budget;
      before = seconds;
    }
  }
}

}  // namespace
}  // namespace epl::budget_ways_test
