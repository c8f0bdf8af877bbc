// Ranks of unequal speed: stages of faster ones have more layers. (That all plans of small problems are compared, with
// such ranks too, is search_test.cc.)
#include <gtest/gtest.h>

#include "core/strategy/search.h"

namespace epl::search_unequal_test {
namespace {

// Operations per second in float32, as the data sheets of NVIDIA say: "Tesla V100 GPU accelerator" (SXM2, 2018) and
// "Tesla P100 PCIe GPU accelerator" (2016).
constexpr double v100 = 15.7e12, p100 = 9.3e12;

// BERT-Large on 4 V100 and 4 P100, with sequences of 128 words. Forms are measured on a V100.
SearchProblem bert_large(std::vector<SearchDevices> devices) {
  constexpr double positions = 128, width = 1024, parameters = 12 * width * width;
  constexpr int layers = 24;
  Machine machine = processor_core();
  machine.links = {{.ranks = 0, .bandwidth = 10e9, .seconds = 1e-5}};
  machine.memories = {{Machine::Memory::Kind::device, 900e9}, {Machine::Memory::Kind::host, 10e9}};
  SearchProblem problem{.cost = CostModel(machine)};
  problem.ranks = 8;
  problem.batch = 512;
  problem.devices = std::move(devices);
  problem.layers.assign(layers, 0);
  const double forward = 2 * parameters * positions / v100;
  SearchLayer layer{.forward = {0, forward}, .backward = {0, 2 * forward}, .weights = 4 * parameters};
  layer.enters = layer.kept = 4 * positions * width;
  problem.forms = {{.name = "", .kinds = {layer}}};
  return problem;
}

SearchSpace two_stages() {
  return {.rows = {find_pipeline("1F1B")},
          .stages = {2},
          .micro_batches = {16},
          .shards = {SearchShards::nothing},
          .offload = {SearchOffload::nothing}};
}

SearchFound best_of(const SearchProblem& problem) {
  const SearchResult result = search_plans(problem, two_stages(), {.count = 1});
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.best.size(), 1u);
  return result.best.empty() ? SearchFound{} : result.best.front();
}

const std::vector<SearchDevices> fast_first = {{.ranks = 4}, {.ranks = 4, .speed = p100 / v100}};

// Jia et al., "Whale: Efficient Giant Model Training over Heterogeneous GPUs" (USENIX ATC 2022): on V100 and P100, load
// by speed makes training 1.2 to 1.45 times as fast as the same load for all.
TEST(UnequalRanks, GainWhatIsPublished) {
  const SearchProblem problem = bert_large(fast_first);
  const SearchFound even = best_of(bert_large({})), uneven = best_of(problem);
  ASSERT_EQ(even.candidate.begins, (std::vector<int>{0, 12}));
  const double gain = cost_of(problem, even.candidate).seconds / uneven.cost.seconds;
  EXPECT_GE(gain, 1.2);
  EXPECT_LE(gain, 1.45);
}

TEST(UnequalRanks, HaveLayersInProportionToTheirSpeed) {
  EXPECT_EQ(best_of(bert_large(fast_first)).candidate.begins, (std::vector<int>{0, 15}));
  EXPECT_EQ(best_of(bert_large({{.ranks = 4, .speed = p100 / v100}, {.ranks = 4}})).candidate.begins,
            (std::vector<int>{0, 9}));
}

// A stage whose ranks are of two kinds is as slow as the slower ones, and has as many bytes as the smaller ones.
TEST(UnequalRanks, OfOneStageWaitForTheSlowest) {
  const SearchProblem problem = bert_large({{.ranks = 3}, {.ranks = 5, .speed = 0.5, .memory = 0.25}});
  const SearchProblem alike = bert_large({{.ranks = 8, .speed = 0.5, .memory = 0.25}});
  const SearchFound mixed = best_of(problem);
  EXPECT_EQ(mixed.cost.seconds, best_of(alike).cost.seconds);
  EXPECT_EQ(mixed.cost.bytes, 4 * cost_of(bert_large({}), mixed.candidate).bytes);
}

// Where the slower ranks have less memory too, their stage has no more layers than fit.
TEST(UnequalRanks, KeepToTheirOwnMemory) {
  SearchProblem problem = bert_large({{.ranks = 4}, {.ranks = 4, .speed = p100 / v100, .memory = 0.25}});
  const double weights = 4 * problem.forms.front().kinds.front().weights;  // with gradients and states, of a layer
  problem.bytes = 23 * weights;
  const SearchFound found = best_of(problem);
  EXPECT_LE(found.cost.bytes, problem.bytes);
  // By their speed they would have nine layers, and six do not fit a quarter of it.
  EXPECT_EQ(found.candidate.begins, (std::vector<int>{0, 19}));
}

}  // namespace
}  // namespace epl::search_unequal_test
