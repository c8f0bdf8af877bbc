// What a split makes of transformer blocks: heads and hidden layers in shards, two sums over the ranks in a block's
// forward pass and two in its backward pass, and no weight that a rank has a shard of ever comes together.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <sstream>
#include <tuple>

#include "core/runtime/session.h"
#include "tests/runtime/block_models.h"
#include "tests/runtime/graph_model.h"

namespace epl::split_blocks_test {
namespace {

std::string local_graph(BlockModel kind, int64_t ranks, const char* strategy = R"({"default": {"split": 2}})") {
  PlanOptions options;
  options.model = GraphModel::parse(block_model(kind));
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "adamw";
  options.train.optimizer_options = {{"lr", 0.01}};
  options.ranks = ranks;
  options.strategy = *parse_strategy(strategy);
  auto plan = CompiledPlan::create(test_host(1), options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return plan.ok() ? *(*plan)->text(EntryKind::train, "local") : "";
}

// "b0 forward all_reduce": of the blocks, what moves values between the ranks of a split. The last sum of a backward
// pass belongs to what the block took, and is counted with all others of that pass.
std::map<std::string, int> collectives(const std::string& local) {
  std::map<std::string, int> found;
  const std::regex node(
      R"(^  (b0|b1|hidden)\b\S*: .* = (all_reduce|all_gather|reduce_scatter|all_to_all)\(.*axis="split")");
  std::string phase;
  std::istringstream lines(local);
  for (std::string line; std::getline(lines, line);) {
    std::smatch parts;
    if (line == "  forward:" || line == "  backward:" || line == "  update:") phase = line.substr(2, line.size() - 3);
    if (!std::regex_search(line, parts, node)) continue;
    ++found[cat(phase == "forward" ? parts[1].str() : "all", " ", phase, " ", parts[2].str())];
  }
  return found;
}

class Blocks : public ::testing::TestWithParam<std::tuple<BlockModel, int>> {};

TEST_P(Blocks, TakeTwoSumsForwardAndTwoBackward) {
  const std::map<std::string, int> found = collectives(local_graph(std::get<0>(GetParam()), std::get<1>(GetParam())));
  const std::map<std::string, int> wanted = {
      {"b0 forward all_reduce", 2}, {"b1 forward all_reduce", 2}, {"all backward all_reduce", 4}};
  EXPECT_EQ(found, wanted);
}

// A sum is scattered, and what a product needs is gathered: also in the backward pass, instead of being kept for it.
TEST_P(Blocks, ScatterAndGatherTwiceForwardBySequence) {
  const std::map<std::string, int> found = collectives(local_graph(
      std::get<0>(GetParam()), std::get<1>(GetParam()), R"({"default": {"split": 2}, "split.sequence": true})"));
  const auto count = [&](const std::string& what) {
    const auto at = found.find(what);
    return at == found.end() ? 0 : at->second;
  };
  for (const char* block : {"b0", "b1"}) {
    EXPECT_EQ(count(cat(block, " forward reduce_scatter")), 2) << block;
    EXPECT_EQ(count(cat(block, " forward all_gather")), 2) << block;
    EXPECT_EQ(count(cat(block, " forward all_reduce")), 0) << block;
  }
  EXPECT_EQ(count("all backward reduce_scatter"), 4);
}

TEST_P(Blocks, HoldShardsOfEveryProductsWeight) {
  const std::string local = local_graph(std::get<0>(GetParam()), std::get<1>(GetParam()));
  int weights = 0;
  std::istringstream lines(block_parameters(std::get<0>(GetParam()), 0));
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(2, line.find(':') - 2);
    if (name.find(".weight") == std::string::npos || name.find("ln") != std::string::npos) continue;
    ++weights;
    for (const char* state : {"", ".mean", ".square"}) {
      const size_t at = local.find(cat("state ", name, state, " "));
      ASSERT_NE(at, std::string::npos) << name << state << " is not cut";
    }
  }
  EXPECT_GE(weights, 4);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<BlockModel, int>>& info) {
  const std::string names[] = {"Gpt", "Llama", "Bert"};
  return cat(names[static_cast<size_t>(std::get<0>(info.param))], "On", std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(, Blocks,
                         ::testing::Combine(::testing::Values(BlockModel::gpt, BlockModel::llama, BlockModel::bert),
                                            ::testing::Values(2, 4)),
                         name_of);

}  // namespace
}  // namespace epl::split_blocks_test
