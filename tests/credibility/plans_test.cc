// What the search picks against what the field runs without one, in simulated steps. The program epl_plans goes through
// all pairs.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <set>

#include "bench/plans/compare.h"
#include "bench/plans/defaults.h"
#include "bench/plans/published.h"
#include "core/strategy/search_step.h"

namespace epl::plans::plans_test {
namespace {

const std::string folder = EPL_SOURCE_DIR "/bench/plans";

SearchProblem problem(const Pair& pair) {
  auto made = problem_of(pair, folder);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

TEST(Pairs, AreAtLeastSixtyAndEachOnce) {
  std::set<std::string> seen;
  for (const Pair& one : pairs()) {
    EXPECT_TRUE(seen.insert(cat(one.model, " ", one.ranks, " ", one.cluster)).second) << one.model;
    EXPECT_TRUE(problem_of(one, folder).ok()) << one.model << " on " << one.cluster;
  }
  EXPECT_GE(seen.size(), 60u);
  EXPECT_FALSE(problem_of({"gpt-6.7b", "abacus", 8, 8}, folder).ok());
}

// A few of all, of each kind one.
TEST(NeverWorse, ThanADefault) {
  for (const size_t p : {size_t{0}, size_t{6}, size_t{17}, size_t{30}, size_t{36}, size_t{60}}) {
    ASSERT_LT(p, pairs().size());
    const auto one = compare(pairs()[p], folder);
    ASSERT_TRUE(one.ok()) << one.status().message();
    for (const Tried& other : one->defaults) {
      EXPECT_LE(one->picked.seconds, other.seconds * (1 + 1e-9))
          << one->pair.model << " on " << one->pair.ranks << " " << one->pair.cluster << ": " << other.name
          << " against " << one->picked.name;
    }
  }
}

TEST(Defaults, FitAndAreWhatTheirRowsSay) {
  const SearchProblem gpt = problem({"gpt-6.7b", "a100", 64, 1024});
  int found = 0;
  for (const Default& row : defaults()) {
    const auto plan = plan_of(row, gpt, 8);
    if (!plan) continue;
    ++found;
    EXPECT_TRUE(is_possible(gpt, *plan)) << row.name;
    EXPECT_LE(cost_of(gpt, *plan).bytes, gpt.bytes) << row.name;
    EXPECT_EQ(gpt.forms[plan->form].ranks, row.splits ? 8 : 1) << row.name;
    EXPECT_EQ(plan->stages > 1, *row.schedule != '\0') << row.name;
    EXPECT_EQ(plan->shards, row.shards) << row.name;
  }
  EXPECT_GE(found, 8);
}

// Ten trillion parameters have more bytes than all GPUs: their weights and gradients lie in the hosts' memory.
TEST(Published, TenTrillionParametersFitWithWeightsInTheHosts) {
  const auto row = std::ranges::find(published(), std::string_view("M6-10T 2021"), &Published::source);
  ASSERT_NE(row, published().end());
  const SearchProblem mixture = problem(row->pair);
  double experts = 0;  // bytes of 16 bits each, of all ranks
  for (const int kind : mixture.layers) experts += 512 * mixture.forms.back().kinds[kind].expert_weights;
  EXPECT_NEAR(experts / 2, 10e12, 0.1e12);
  const auto one = compare_published(*row, folder);
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_TRUE(one->fits);
  EXPECT_LE(one->picked.seconds, one->theirs.seconds * (1 + 1e-9)) << one->picked.name;
  EXPECT_EQ(one->picked.candidate.offload, SearchOffload::weights) << one->picked.name;
}

// Of layers that are alike, in the numbers that the formulas are exact for.
SearchProblem even(int64_t ranks) {
  Machine machine = processor_core();
  machine.links = {{.ranks = 0, .bandwidth = 1e30, .seconds = 0}};
  machine.memories = {{MemoryKind::device, 1e30}, {MemoryKind::host, 1e30}};
  SearchProblem made{.cost = CostModel(machine)};
  made.ranks = ranks;
  made.batch = 32;
  made.layers.assign(8, 0);
  made.forms = {{.name = "", .kinds = {{.forward = {0, 1}, .backward = {0, 2}}}}};
  return made;
}

TEST(Steps, AreAsLongAsTheFormulaWhereNothingIsSent) {
  for (const char* word : {"1F1B", "GPipe", "interleaved", "ZB-H1"}) {
    const SearchProblem made = even(4);
    SearchCandidate plan{.row = find_pipeline(word), .stages = 4, .copies = 1, .micro_batches = 8};
    plan.chunks = std::string(word) == "interleaved" ? 2 : 1;
    for (int s = 0; s < plan.shape().stages(); ++s) plan.begins.push_back(s * 8 / plan.shape().stages());
    plan.again.assign(8, 0);
    const SearchStep step = simulate_step(made, plan);
    EXPECT_NEAR(step.seconds / cost_of(made, plan).seconds, 1, 0.03) << word;
    EXPECT_NEAR(step.idle, idle_share(*plan.row, plan.shape()), 0.03) << word;
  }
}

// One slow rank of many holds up the step of all, and seeds give other ranks.
TEST(Steps, WaitForStragglers) {
  const SearchProblem made = problem({"gpt-13b", "a100", 128, 1024});
  const auto best = pick(made);
  ASSERT_TRUE(best.ok()) << best.status().message();
  const double alone = simulate_step(made, best->candidate).seconds;
  const double all = simulate_step(made, best->candidate, {.share = 1, .slower = 1.5}).seconds;
  EXPECT_NEAR(simulate_step(made, best->candidate, {.share = 0.5, .slower = 1}).seconds, alone, 1e-9 * alone);
  const double some = simulate_step(made, best->candidate, {.share = 0.02, .slower = 1.5, .seed = 7}).seconds;
  EXPECT_GT(some, 1.02 * alone);
  EXPECT_LE(some, all * (1 + 1e-9));
  EXPECT_EQ(some, simulate_step(made, best->candidate, {.share = 0.02, .slower = 1.5, .seed = 7}).seconds);
}

}  // namespace
}  // namespace epl::plans::plans_test
