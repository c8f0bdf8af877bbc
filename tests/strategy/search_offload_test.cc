// What lies in another memory: how long its copies take, what they leave, and when they are chosen. (That all plans of
// small problems are compared, with what lies there too, is search_test.cc.)
#include <gtest/gtest.h>

#include "core/strategy/search_step.h"

namespace epl::search_offload_test {
namespace {

// Four layers alike on one rank, and two samples: a step computes for 24 s. Weights, gradients and states have 400
// bytes each. So many bytes a second come from the other memory.
SearchProblem layers(double bandwidth) {
  Machine machine = processor_core();
  machine.memories = {{MemoryKind::device, 1e30}, {MemoryKind::host, bandwidth}};
  SearchProblem problem{.cost = CostModel(machine)};
  problem.batch = 2;
  problem.states = 1;
  problem.layers.assign(4, 0);
  problem.forms = {
      {.name = "", .kinds = {{.forward = {0, 1}, .backward = {0, 2}, .weights = 100, .parameters = 1, .kept = 1}}}};
  return problem;
}

SearchCandidate candidate(SearchOffload offload, int64_t micro_batches) {
  SearchCandidate one{.row = &one_stage(), .micro_batches = micro_batches};
  one.offload = offload;
  one.begins = {0};
  one.again.assign(4, 0);
  return one;
}

struct Expected {
  SearchOffload offload = SearchOffload::nothing;
  int64_t micro_batches = 1;
  double seconds = 0, bytes = 0, beside = 0;
};

// A layer's states, its gradient and two layers' weights are where kernels compute. Sums of gradients stay there.
constexpr Expected expected[] = {
    {SearchOffload::nothing, 1, 24, 1200 + 8, 0},
    {SearchOffload::states, 1, 24 + 8, 800 + 100 + 8, 400},
    {SearchOffload::weights, 2, 24 + 16, 400 + 300 + 4, 800},
    {SearchOffload::weights, 1, 24 + 20, 400 + 8, 1200},
};

TEST(Offload, TakesWhatItsCopiesTake) {
  for (const Expected& one : expected) {
    const SearchCost cost = cost_of(layers(100), candidate(one.offload, one.micro_batches));
    EXPECT_NEAR(cost.seconds, one.seconds, 1e-6);
    EXPECT_NEAR(cost.bytes, one.bytes, 1e-6);
    EXPECT_NEAR(cost.beside, one.beside, 1e-6);
  }
  // Weights come twice, for longer than a step computes.
  EXPECT_NEAR(cost_of(layers(10), candidate(SearchOffload::weights, 1)).seconds, 80 + 200, 1e-6);
}

// The first layer waits for its weights, the last gradient goes behind all calls, and else nothing waits.
TEST(Offload, IsSimulatedOneLayerAhead) {
  const auto step = [](double bandwidth, const Expected& one) {
    return simulate_step(layers(bandwidth), candidate(one.offload, one.micro_batches)).seconds;
  };
  EXPECT_NEAR(step(100, expected[0]), 24, 1e-6);
  EXPECT_NEAR(step(100, expected[1]), 24 + 8, 1e-6);
  EXPECT_NEAR(step(100, expected[2]), 1 + 24 + 16, 1e-6);
  EXPECT_NEAR(step(100, expected[3]), 1 + 24 + 1 + 20, 1e-6);
  // Eight layers' weights, one after another; behind them the last layer, and its gradient.
  EXPECT_NEAR(step(10, expected[3]), 80 + 4 + 10 + 200, 1e-6);
}

TEST(Offload, IsChosenWhereNothingElseFits) {
  SearchProblem problem = layers(100);
  for (const Expected& one : expected) {
    problem.bytes = one.bytes + 1;
    const SearchResult result = search_plans(problem, {}, {.count = 1});
    ASSERT_EQ(result.best.size(), 1u);
    const SearchFound& found = result.best.front();
    EXPECT_EQ(found.candidate.offload, one.offload) << print_candidate(problem, found.candidate);
    EXPECT_NEAR(found.cost.seconds, one.seconds, 1e-6);
    EXPECT_LE(found.cost.bytes, problem.bytes);
  }
  problem.beside_bytes = 1201;
  EXPECT_EQ(search_plans(problem).best.size(), 1u);
  problem.beside_bytes = 1199;
  EXPECT_TRUE(search_plans(problem).best.empty()) << "the other memory is too small";
}

// Of copies each has a share.
TEST(Offload, IsSharedOut) {
  SearchProblem problem = layers(100);
  problem.ranks = 2;
  SearchCandidate one = candidate(SearchOffload::weights, 1);
  one.copies = 2;
  for (const auto& [shards, beside] :
       {std::pair{SearchShards::nothing, 1200.0}, std::pair{SearchShards::states, 1000.0},
        std::pair{SearchShards::gradients, 800.0}, std::pair{SearchShards::weights, 600.0}}) {
    one.shards = shards;
    EXPECT_NEAR(cost_of(problem, one).beside, beside, 1e-6);
  }
}

// Plans that leave weights where they are and are as fast stand for those that do not.
TEST(Offload, OfWeightsIsNoOtherPlanWhereItIsSlower) {
  const SearchResult result = search_plans(layers(100), {}, {.count = 24, .by_memory = true});
  ASSERT_EQ(result.best.size(), 2u);
  EXPECT_EQ(result.best[0].candidate.offload, SearchOffload::nothing);
  EXPECT_EQ(result.best[1].candidate.offload, SearchOffload::states);
}

}  // namespace
}  // namespace epl::search_offload_test
