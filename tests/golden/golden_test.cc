// Texts against files: every stage of an MLP's train step, and what lists of passes make of the graphs in the folder
// `passes`. To accept a change, run test_golden with EPL_UPDATE_GOLDEN=1 in the environment and read the difference
// before committing it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "backends/cpu/cpu.h"
#include "core/runtime/session.h"
#include "core/strategy/pass.h"
#include "core/strategy/plan_text.h"
#include "tests/runtime/block_models.h"
#include "tests/runtime/graph_model.h"

namespace epl::golden_test {
namespace {

constexpr std::string_view mlp = R"(graph mlp(x: f32[8,12] batch 0) {
  fc1.weight: f32[16,12] = param
  fc1.bias: f32[16] = param
  fc2.weight: f32[4,16] = param
  fc2.bias: f32[4] = param
  forward:
  hidden: f32[8,16] = linear(x, fc1.weight, fc1.bias) {transpose_w=true}
  active: f32[8,16] = relu(hidden)
  y: f32[8,4] = linear(active, fc2.weight, fc2.bias) {transpose_w=true}
  output y = y
}
)";

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void compare(const std::string& name, const std::string& text) {
  std::string path = cat(EPL_SOURCE_DIR, "/tests/golden/", name);
  if (std::getenv("EPL_UPDATE_GOLDEN")) {
    std::ofstream(path, std::ios::binary) << text;
    GTEST_SKIP() << path << " was written; compare it with version control";
  }
  EXPECT_EQ(text, read(path)) << name << " changed; see the head of golden_test.cc";
}

std::shared_ptr<const CompiledPlan> plan(int64_t ranks, const char* micro_batches, std::string_view model = mlp,
                                         const std::string& strategy = "{}") {
  PlanOptions options;
  options.model = GraphModel::parse(model);
  options.strategy = *parse_strategy(strategy);
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "adamw";
  options.train.optimizer_options = {{"lr", 0.01}};
  options.ranks = ranks;
  EXPECT_TRUE(set_config(options.strategy, "pipeline.num_micro_batch", micro_batches).ok());
  cpu::ScopedCpuLevel level(cpu::CpuLevel::v3);  // workspaces differ between processors; kernels do not run here
  auto made = CompiledPlan::create(test_host(1), options);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return *made;
}

class Stage : public ::testing::TestWithParam<const char*> {};

TEST_P(Stage, OfOneRank) { compare(cat("mlp.", GetParam()), *plan(1, "1")->text(EntryKind::train, GetParam())); }
TEST_P(Stage, OfTwoRanksAndTwoMicroBatches) {
  compare(cat("mlp_2x2.", GetParam()), *plan(2, "2")->text(EntryKind::train, GetParam()));
}

// Megatron's cut: two all-reduces in each block, forward and backward.
TEST(SplitStage, Gpt) {
  const auto made = plan(2, "1", block_model(BlockModel::gpt), R"({"default": {"split": 2}})");
  for (const char* stage : {"plan", "local"}) compare(cat("gpt_split2.", stage), *made->text(EntryKind::train, stage));
}

// The same with what lies between in shards: two reduce-scatters and two all-gathers in each block's forward pass.
TEST(SplitStage, GptBySequence) {
  const auto made = plan(2, "1", block_model(BlockModel::gpt), R"({"default": {"split": 2}, "split.sequence": true})");
  for (const char* stage : {"plan", "local"})
    compare(cat("gpt_sequence2.", stage), *made->text(EntryKind::train, stage));
}

// Copies share out the update: sums of gradients are scattered, new weights gathered where the old ones were.
TEST(ZeroStage, MlpOfTwoRanks) {
  const auto made = plan(2, "1", mlp, R"({"zero.level": "v0"})");
  for (const char* stage : {"local", "program"})
    compare(cat("mlp_zero2.", stage), *made->text(EntryKind::train, stage));
}

// Copies that share each micro-batch: sums of gradients are scattered in each, and shards are added up.
TEST(OrderStage, MlpOfTwoRanksAndTwoMicroBatches) {
  const auto made = plan(2, "2", mlp, R"({"zero.level": "v0", "batch.order": "micro_batches"})");
  compare("mlp_order2x2.local", *made->text(EntryKind::train, "local"));
}

// The lines "# passes: ...", "# ranks: ..." and "# strategy: {...}" in front of a graph; the value of `key`, or
// `otherwise`.
std::string told(const std::string& text, const std::string& key, std::string otherwise) {
  const std::string start = cat("# ", key, ": ");
  const size_t at = text.find(start);
  if (at == std::string::npos) return otherwise;
  return text.substr(at + start.size(), text.find('\n', at) - at - start.size());
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(cat(EPL_SOURCE_DIR, "/tests/golden/passes"))) {
    if (entry.path().extension() == ".graph") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

class Passes : public ::testing::TestWithParam<std::string> {};

TEST_P(Passes, MakeThePlanOnFile) {
  const std::string text = read(cat(EPL_SOURCE_DIR, "/tests/golden/passes/", GetParam(), ".graph"));
  ASSERT_NE(told(text, "passes", ""), "") << "the file's head names no passes";
  auto graph = parse_graph(text.substr(text.find("graph ")));
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  auto strategy = parse_strategy(told(text, "strategy", "{}"));
  ASSERT_TRUE(strategy.ok()) << strategy.status().to_string();
  PlanRequest request{.graph = std::make_shared<const Graph>(*std::move(graph)),
                      .strategy = *strategy,
                      .ranks = std::stoll(told(text, "ranks", "1")),
                      .passes = told(text, "passes", "")};
  auto made = decide(request);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const std::string printed = print_plan_with_reasons(*made);
  auto again = parse_plan(printed, request.graph);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(print_plan_with_reasons(*again), printed) << "the plan's text does not hold all of it";
  compare(cat("passes/", GetParam(), ".plan"), printed);
}

// A pass that no file shows could stop cutting, and every test that compares bits would still pass.
TEST(PassFiles, ShowEveryPass) {
  const std::vector<std::string> names = pass_names();
  for (const PassRow& row : pass_table().rows)
    EXPECT_NE(std::ranges::find(names, row.name), names.end()) << "tests/golden/passes has no " << row.name << ".graph";
}

INSTANTIATE_TEST_SUITE_P(Files, Passes, ::testing::ValuesIn(pass_names()), [](const auto& info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(Mlp, Stage, ::testing::Values("graph", "plan", "local", "program"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace epl::golden_test
