// Gradients that ranks add up in fewer bytes than weights have: plans are faster by that, and as large.
#include <gtest/gtest.h>

#include "core/strategy/search_step.h"

namespace epl::search_summed_test {
namespace {

// Four layers alike and two copies, of which sums of gradients take longer than all else.
SearchProblem layers(double summed) {
  Machine machine = processor_core();
  machine.links = {{.ranks = 0, .bandwidth = 10, .seconds = 0}};
  SearchProblem problem{.cost = CostModel(machine)};
  problem.ranks = 2;
  problem.batch = 2;
  problem.summed = summed;
  problem.layers.assign(4, 0);
  problem.forms = {
      {.name = "", .kinds = {{.forward = {0, 1}, .backward = {0, 2}, .weights = 1000, .parameters = 1, .kept = 1}}}};
  return problem;
}

TEST(SummedBytes, AreTimeAndNoMemory) {
  for (const SearchShards shards : {SearchShards::nothing, SearchShards::states, SearchShards::gradients}) {
    SearchCandidate one{.row = &one_stage(), .copies = 2, .shards = shards};
    one.begins = {0};
    one.again.assign(4, 0);
    const SearchCost all = cost_of(layers(1), one), half = cost_of(layers(0.5), one);
    EXPECT_LT(half.seconds, all.seconds * 0.8) << static_cast<int>(shards);
    EXPECT_EQ(half.bytes, all.bytes) << static_cast<int>(shards);
    EXPECT_LT(simulate_step(layers(0.5), one).seconds, simulate_step(layers(1), one).seconds * 0.8);
  }
}

}  // namespace
}  // namespace epl::search_summed_test
