// What a search gives where its work, its units or its devices are few; and that it gives the same each time.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "tests/strategy/search_problems.h"

namespace epl::search_limits_test {
namespace {

void expect_valid(const SearchProblem& problem, const SearchFound& found) {
  const std::string text = print_candidate(problem, found.candidate);
  ASSERT_TRUE(is_possible(problem, found.candidate)) << text;
  ASSERT_EQ(std::ssize(found.candidate.begins), found.candidate.shape().stages()) << text;
  ASSERT_EQ(found.candidate.again.size(), problem.layers.size()) << text;
  EXPECT_EQ(found.candidate.begins.front(), 0) << text;
  EXPECT_TRUE(std::ranges::is_sorted(found.candidate.begins, std::ranges::less_equal())) << text;
  const SearchCost cost = cost_of(problem, found.candidate);
  EXPECT_EQ(found.cost.seconds, cost.seconds) << text;
  EXPECT_EQ(found.cost.bytes, cost.bytes) << text;
  EXPECT_TRUE(is_within_limits(problem, cost)) << text;
}

// What is found by then is a plan, is no better than the best there is, and gets better with more work. How many limits
// were too little for all, and enough for a plan.
int expect_better_with_work(const SearchProblem& problem, const std::string& text) {
  constexpr double none = std::numeric_limits<double>::infinity(), rounding = 1e-12;
  const double best = search_plans(problem).best.front().cost.seconds;
  double before = none;
  int early = 0;
  for (int64_t work = 1; work <= 1 << 20; work *= 4) {
    const SearchResult result = search_plans(problem, {}, {.work = work});
    const double seconds = result.best.empty() ? none : result.best.front().cost.seconds;
    for (const SearchFound& one : result.best) expect_valid(problem, one);
    EXPECT_LE(result.least_seconds, best * (1 + rounding)) << text << ", " << work;
    EXPECT_GE(seconds, best * (1 - rounding)) << text << ", " << work;
    EXPECT_LE(seconds, before * (1 + rounding)) << text << ", " << work;
    if (result.finished) EXPECT_EQ(seconds, best) << text << ", " << work;
    if (!result.finished && !result.best.empty()) ++early;
    before = seconds;
  }
  return early;
}

TEST(SearchLimits, GiveTheBestSoFarWhichGetsBetterWithWork) {
  SearchProblem problem = gpt_on_gpus(24, 4096, 32, 64);
  int early = expect_better_with_work(problem, "GPUs");
  problem.bytes = 30e9;
  early += expect_better_with_work(problem, "less memory");
  EXPECT_GT(early, 0);
}

TEST(SearchLimits, GiveNothingToWhoHasStopped) {
  const SearchProblem problem = gpt_on_gpus(24, 4096, 32, 64);
  EXPECT_FALSE(search_plans(problem, {}, {.work = 1}).finished);
  StopToken token;
  token.cancel();
  const SearchResult never = search_plans(problem, {}, {.work = 1, .stop = Stop(&token, nullptr, 0)});
  EXPECT_FALSE(never.finished);
  EXPECT_TRUE(never.best.empty());
  const double best = search_plans(problem).best.front().cost.seconds;
  EXPECT_LE(never.least_seconds, best * (1 + 1e-12));  // but for rounding
}

TEST(SearchLimits, ChangeNothingFromOneSearchToTheNext) {
  for (const int64_t work : {int64_t{10'000}, int64_t{20'000'000}}) {
    const SearchProblem problem = gpt_on_gpus(24, 4096, 32, 64);
    const SearchResult first = search_plans(problem, {}, {.count = 8, .by_memory = true, .work = work});
    const SearchResult second = search_plans(problem, {}, {.count = 8, .by_memory = true, .work = work});
    EXPECT_EQ(first.least_seconds, second.least_seconds);
    EXPECT_EQ(first.searched, second.searched);
    ASSERT_EQ(first.best.size(), second.best.size());
    for (size_t i = 0; i < first.best.size(); ++i) {
      const SearchCandidate &a = first.best[i].candidate, &b = second.best[i].candidate;
      EXPECT_EQ(print_candidate(problem, a), print_candidate(problem, b));
      EXPECT_EQ(a.begins, b.begins);
      EXPECT_EQ(a.again, b.again);
      EXPECT_EQ(first.best[i].cost.seconds, second.best[i].cost.seconds);
      EXPECT_EQ(first.best[i].cost.bytes, second.best[i].cost.bytes);
    }
  }
}

// Twice the ranks have twice the copies, of half the samples or of half the micro-batches. So a step is shorter, as
// long as nothing moves and numbers divide. It need not be where sums go over more ranks, which is why `epl plan
// --devices` says from where on adding devices does not pay; nor for numbers that divide neither batch nor layers.
TEST(SearchLimits, MoreDevicesAreFasterWhereNothingMoves) {
  for (const int layers : {1, 4}) {
    double before = std::numeric_limits<double>::infinity();
    for (int64_t ranks = 1; ranks <= 64; ranks *= 2) {
      const SearchResult result = search_plans(seconds_of_samples(layers, ranks));
      ASSERT_FALSE(result.best.empty()) << ranks;
      EXPECT_LT(result.best.front().cost.seconds, before) << layers << " layers, " << ranks << " ranks";
      before = result.best.front().cost.seconds;
    }
  }
  EXPECT_TRUE(search_plans(seconds_of_samples(1, 3)).best.empty()) << "three divide neither 64 samples nor one layer";
  SearchProblem one = seconds_of_samples(1, 1), two = seconds_of_samples(1, 2);
  for (SearchProblem* problem : {&one, &two}) problem->forms.front().kinds.front().weights = 1e12;
  EXPECT_GT(search_plans(two).best.front().cost.seconds, search_plans(one).best.front().cost.seconds);
}

TEST(SearchLimits, SaysWhatMoreUnitsWouldGive) {
  const SearchLimits limits;
  constexpr double none = std::numeric_limits<double>::infinity();
  // One layer has one stage, of eight copies at most.
  const SearchProblem one = seconds_of_samples(1, 32, 8);
  EXPECT_TRUE(search_plans(one).best.empty());
  const auto possible = with_more_units(one, {}, limits, none);
  ASSERT_TRUE(possible.has_value());
  EXPECT_EQ(possible->units, 32);
  EXPECT_EQ(possible->found.candidate.copies, 32);
  EXPECT_NEAR(possible->found.cost.seconds, 6.2, 1e-9);
  // Two stages of eight copies wait for each other, because there are no units for micro-batches.
  const SearchProblem two = seconds_of_samples(2, 16, 8);
  const double seconds = search_plans(two).best.front().cost.seconds;
  const auto faster = with_more_units(two, {}, limits, seconds);
  ASSERT_TRUE(faster.has_value());
  EXPECT_GE(faster->units, 16);
  EXPECT_LT(faster->found.cost.seconds, 0.6 * seconds);
  SearchProblem enough = two;
  enough.units = faster->units;
  EXPECT_EQ(search_plans(enough).best.front().cost.seconds, faster->found.cost.seconds);
  EXPECT_FALSE(with_more_units(two, {}, limits, faster->found.cost.seconds).has_value());
  // Nothing binds where all ranks have their units, or the batch has no more.
  const SearchProblem eight = seconds_of_samples(1, 8, 8);
  const double best = search_plans(eight).best.front().cost.seconds;
  EXPECT_FALSE(with_more_units(eight, {}, limits, best).has_value());
  EXPECT_FALSE(with_more_units(seconds_of_samples(1, 32, 64), {}, limits, none).has_value());
  EXPECT_FALSE(with_more_units(seconds_of_samples(1, 32, 0), {}, limits, none).has_value());
}

}  // namespace
}  // namespace epl::search_limits_test
