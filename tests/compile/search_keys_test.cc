// Keys of a strategy and candidates of a search say the same of what lies in another memory and of how hosts sum; and
// over how many ranks experts may be shared out.
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

// Where hosts have several ranks, and all-reduces are what sums gradients.
TEST(SearchKeys, LetSumsGoInsideHostsFirst) {
  Machine machine = processor_core();
  machine.links = {{.ranks = 4, .bandwidth = 1e11, .seconds = 1e-6}, {.ranks = 0, .bandwidth = 1e9, .seconds = 1e-5}};
  SearchProblem problem{.cost = CostModel(machine)};
  problem.ranks = problem.batch = 8;
  problem.layers = {0};
  problem.forms = {{.name = "", .kinds = {SearchLayer{.weights = 1e9}}}};
  SearchCandidate one{.row = &one_stage(), .copies = 8};
  one.begins = one.again = {0};
  const auto key = [&] { return with_candidate({}, problem, one).config.has("communication.hierarchical"); };
  const SearchCost flat = cost_of(problem, one);
  const double step = simulate_step(problem, one).seconds;
  EXPECT_FALSE(key());
  problem.two_levels = true;
  EXPECT_TRUE(key());
  EXPECT_TRUE(with_candidate({}, problem, one).flag("communication.hierarchical"));
  EXPECT_NE(print_candidate(problem, one).find("sums inside hosts first"), std::string::npos);
  EXPECT_LT(cost_of(problem, one).seconds, flat.seconds);
  EXPECT_LT(simulate_step(problem, one).seconds, step);
  one.shards = SearchShards::states;
  EXPECT_FALSE(key());
  EXPECT_TRUE(may_go_in_levels({}));
  EXPECT_TRUE(may_go_in_levels(with_keys({{"communication.hierarchical", "true"}})));
  EXPECT_FALSE(may_go_in_levels(with_keys({{"communication.hierarchical", "false"}})));
}

// Of so many ranks with a sample each, in hosts of so many; 0: there is one host.
std::vector<int64_t> tried(int64_t ranks, int64_t experts, int64_t host, int64_t units = 0) {
  Machine machine = processor_core();
  machine.links = {{.ranks = 0, .bandwidth = 1e9, .seconds = 1e-5}};
  if (host > 0) machine.links.insert(machine.links.begin(), {.ranks = host, .bandwidth = 1e11, .seconds = 1e-6});
  SearchProblem problem{.cost = CostModel(machine)};
  problem.ranks = problem.batch = ranks;
  problem.units = units;
  return experts_to_try(problem, experts);
}

TEST(ExpertsToTry, DivideRanksAndExperts) {
  using Numbers = std::vector<int64_t>;
  EXPECT_EQ(tried(12, 0, 0), (Numbers{2, 4}));
  EXPECT_EQ(tried(12, 24, 0), (Numbers{2, 3, 4, 6, 12}));
  EXPECT_EQ(tried(12, 8, 0), (Numbers{2, 4}));
  EXPECT_EQ(tried(12, 24, 0, 8), (Numbers{2, 4})) << "units are cut by powers of two";
  EXPECT_TRUE(tried(3, 0, 0).empty());
  // As published plans of 480 and 512 V100 have it.
  EXPECT_EQ(tried(480, 960, 8), (Numbers{5, 6, 8, 160, 240, 480}));
  EXPECT_EQ(tried(512, 512, 8), (Numbers{2, 4, 8, 128, 256, 512}));
  EXPECT_EQ(tried(512, 512, 0), (Numbers{16, 32, 64, 128, 256, 512}));
  EXPECT_EQ(tried(2048, 2048, 2), (Numbers{2, 32, 64, 128, 256, 512}));
}

}  // namespace
}  // namespace epl::search_keys_test
