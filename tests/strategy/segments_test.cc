// Level `layout`: which sums have segments, and that no other sum is cut.
#include "core/strategy/segments.h"

#include <gtest/gtest.h>

#include "core/strategy/pass.h"

namespace epl::segments_test {
namespace {

// `inner` is what the second product sums over.
Result<Plan> plan_of(int64_t inner, int64_t ranks, const std::string& level = "layout") {
  EPL_ASSIGN(Graph graph,
             parse_graph(cat("graph step(x: f32[8,12] batch 0) {\n  w1: f32[12,", inner, "] = param\n  w2: f32[", inner,
                             ",12] = param\n  forward:\n  h: f32[8,", inner,
                             "] = matmul(x, w1)\n  y: f32[8,12] = matmul(h, w2)\n  output y = y\n}\n")));
  EPL_ASSIGN(const Strategy strategy,
             parse_strategy(cat(R"({"default": {"split": )", ranks, R"(}, "reproducible.level": ")", level, "\"}")));
  return decide(
      {.graph = std::make_shared<const Graph>(std::move(graph)), .strategy = strategy, .ranks = ranks, .passes = ""});
}

const NodeSharding& last(const Plan& plan) { return plan.node_shardings.back(); }

TEST(SumSegments, AreTheSameHoweverManyRanksThereAre) {
  for (int64_t ranks : {1, 2, 4, 8}) {
    auto plan = plan_of(48, ranks);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_EQ(last(*plan).segments, (SumSegments{.factor = 0, .outer = 1, .count = 8})) << ranks;
    EXPECT_EQ(local_segments(plan->mesh(), last(*plan)), 8 / ranks);
  }
  EXPECT_FALSE(last(*plan_of(48, 2, "data")).segments);
}

// 12 numbers are 4 segments of 3: eight ranks cannot have full ones, so that all of it runs on each.
TEST(SumSegments, AreNotCutInShards) {
  EXPECT_EQ(last(*plan_of(12, 4)).segments.count, 4);
  EXPECT_TRUE(last(*plan_of(12, 4)).cut_by(plan_of(12, 4)->mesh().find("split")));
  auto plan = plan_of(24, 8);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(last(*plan).segments.count, 8);
  plan = plan_of(12, 8);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(last(*plan).segments.count, 4);
  EXPECT_FALSE(last(*plan).cut_by(plan->mesh().find("split")));
}

// A plan from elsewhere, a file or a pass to come, is held to the promise.
TEST(SumSegments, APlanThatSumsShardsOtherwiseIsRefusedByName) {
  auto plan = plan_of(48, 2);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  ASSERT_TRUE(verify_plan(*plan).ok());
  for (const int64_t count : {0, 1, 3, 64}) {
    SumSegments& segments = plan->node_shardings.back().segments;
    segments = count ? SumSegments{.factor = 0, .outer = 1, .count = count} : SumSegments();
    const Status status = verify_plan(*plan);
    EXPECT_NE(status.message().find("node y "), std::string::npos) << count << ": " << status.to_string();
  }
}

}  // namespace
}  // namespace epl::segments_test
