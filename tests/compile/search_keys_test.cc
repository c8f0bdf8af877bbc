// Keys of a strategy and candidates of a search say the same of what lies in another memory.
#include "core/compile/search_keys.h"

#include <gtest/gtest.h>

namespace epl::search_keys_test {
namespace {

using Offloads = std::vector<SearchOffload>;

Strategy with_keys(const std::vector<std::pair<const char*, const char*>>& keys) {
  Strategy strategy;
  for (const auto& [key, value] : keys) EXPECT_TRUE(set_config(strategy, key, value).ok()) << key;
  return strategy;
}

TEST(SearchKeys, SayWhatMayLieInAnotherMemory) {
  EXPECT_TRUE(space_of(Strategy(), true).offload.empty());
  EXPECT_EQ(space_of(Strategy(), false).offload, Offloads{SearchOffload::nothing});
  EXPECT_EQ(space_of(with_keys({{"offload.level", ""}}), true).offload, Offloads{SearchOffload::nothing});
  EXPECT_EQ(space_of(with_keys({{"offload.level", "v0"}}), true).offload,
            (Offloads{SearchOffload::states, SearchOffload::weights}));
  EXPECT_EQ(space_of(with_keys({{"offload.level", "v0"}, {"offload.values", "states"}}), true).offload,
            Offloads{SearchOffload::states});
  EXPECT_EQ(space_of(with_keys({{"offload.level", "v0"}, {"offload.values", "states, weights"}}), true).offload,
            Offloads{SearchOffload::weights});
}

TEST(SearchKeys, AreSetByWhatACandidateMoves) {
  SearchProblem problem{.cost = CostModel(processor_core())};
  problem.forms = {SearchForm()};
  const auto values = [&](SearchOffload offload, int64_t micro_batches, const Strategy& strategy) {
    SearchCandidate one{.row = &one_stage(), .micro_batches = micro_batches};
    one.offload = offload;
    const Strategy made = with_candidate(strategy, problem, one);
    EXPECT_EQ(made.text("offload.level"), offload == SearchOffload::nothing ? "" : "v0");
    return made.text("offload.values");
  };
  EXPECT_EQ(values(SearchOffload::nothing, 1, {}), "");
  EXPECT_EQ(values(SearchOffload::states, 1, {}), "states");
  EXPECT_EQ(values(SearchOffload::weights, 1, {}), "states, weights, gradients");
  EXPECT_EQ(values(SearchOffload::weights, 2, {}), "states, weights");
  // Gradients of independent micro-batches stay.
  EXPECT_EQ(values(SearchOffload::weights, 1, with_keys({{"batch.semantics", "per_micro_batch"}})), "states, weights");
  EXPECT_EQ(values(SearchOffload::weights, 1, with_keys({{"offload.values", "weights"}})), "weights");
}

}  // namespace
}  // namespace epl::search_keys_test
