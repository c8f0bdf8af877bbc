// split.sequence: what lies between the cut nodes of a split is in pieces. The answer is that of one rank, at level
// `layout` to the bit, and a rank keeps less.
#include <gtest/gtest.h>

#include <map>

#include "core/runtime/session.h"
#include "tests/runtime/block_models.h"
#include "tests/runtime/graph_model.h"

namespace epl {
namespace {

struct Layout {
  std::string name;
  BlockModel model = BlockModel::gpt;
  int64_t ranks = 1;
  std::string strategy;  // keys and scopes
  bool drops = false;    // behind each block's first pair of products
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

std::string model_of(const Layout& layout) {
  std::string text = block_model(layout.model);
  for (const char* block : {"b0", "b1"}) {
    const std::string product = cat(block, ".proj");
    const size_t use = layout.drops ? text.find(cat(", ", product, ")")) : std::string::npos;
    if (use == std::string::npos) continue;
    text.insert(use + 2 + product.size(), ".kept");
    text.insert(text.rfind('\n', use) + 1, cat("  ", product, ".kept: f32[4,4,8], ", product,
                                               ".mask: bool[4,4,8] = dropout(", product, ") {ratio=0.25}\n"));
  }
  return text;
}

std::shared_ptr<const CompiledPlan> plan_of(const Layout& layout, const std::string& level) {
  PlanOptions options;
  options.model = GraphModel::parse(model_of(layout));
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "adamw";
  options.train.optimizer_options = {{"lr", 0.01}};
  options.train.clip_norm = 1;
  options.ranks = layout.ranks;
  options.strategy = *parse_strategy(
      cat("{\"reproducible.level\": \"", level, "\"", layout.strategy.empty() ? "" : ", ", layout.strategy, "}"));
  auto plan = CompiledPlan::create(test_host(2), options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return plan.ok() ? *plan : nullptr;
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, Tensor> state;
  Tensor answers{TensorType{DType::f32, {4, 4, 16}}};
  bool scatters = false;
};

Trained trained(const Layout& layout, const std::string& level) {
  Trained made;
  const auto plan = plan_of(layout, level);
  if (!plan) return made;
  auto session = Session::create(test_host(2), plan, 7);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  if (!session.ok()) return made;
  Tensor ids(TensorType{DType::i64, {4, 4}}), target(ids.type());
  for (int s = 0; s < 3; ++s) {
    for (int i = 0; i < 16; ++i) {
      ids.set_int(i, (i * 7 + s) % 16);
      target.set_int(i, (i * 3 + s) % 16);
    }
    StepMetrics metrics;
    const Status status = (*session)->step(std::vector<Tensor>{ids, target}, metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    made.losses.push_back(metrics.loss);
  }
  EXPECT_EQ((*session)->memory_bytes_used(), plan->memory_bytes_peak());
  made.scatters = plan->text(EntryKind::train, "local")->find("reduce_scatter") != std::string::npos;
  for (const StateSlot& slot : plan->state().slots()) made.state.emplace(slot.name, *(*session)->state(slot.name));
  std::vector<Tensor> answers = {made.answers};
  const Status status = (*session)->predict(std::vector<Tensor>{ids}, answers);
  EXPECT_TRUE(status.ok()) << status.to_string();
  made.answers = answers[0];
  return made;
}

class Sequence : public ::testing::TestWithParam<Layout> {
 protected:
  static Layout alone() { return {.model = GetParam().model, .drops = GetParam().drops}; }
};

TEST_P(Sequence, LearnsWhatOneRankLearns) {
  const Trained wanted = trained(alone(), "data"), found = trained(GetParam(), "data");
  ASSERT_EQ(found.losses.size(), wanted.losses.size());
  for (size_t s = 0; s < wanted.losses.size(); ++s) EXPECT_NEAR(found.losses[s], wanted.losses[s], 1e-5) << s;
  for (const auto& [name, value] : wanted.state) {
    for (int64_t i = 0; i < value.elements(); ++i)
      ASSERT_NEAR(found.state.at(name).get(i), value.get(i), 2e-4) << name << " " << i;
  }
  for (int64_t i = 0; i < wanted.answers.elements(); ++i)
    EXPECT_NEAR(found.answers.get(i), wanted.answers.get(i), 1e-3) << i;
}

TEST_P(Sequence, HasTheBitsOfOneRankAtLevelLayout) {
  const Trained wanted = trained(alone(), "layout"), found = trained(GetParam(), "layout");
  EXPECT_EQ(found.losses, wanted.losses);
  for (const auto& [name, value] : wanted.state) EXPECT_TRUE(identical(found.state.at(name), value)) << name;
  EXPECT_TRUE(identical(found.answers, wanted.answers));
  EXPECT_TRUE(found.scatters);
}

const std::string by_2 = R"("default": {"split": 2}, "split.sequence": true)",
                  by_4 = R"("default": {"split": 4}, "split.sequence": true)",
                  in_stages = R"("split.sequence": true, "pipeline.num_micro_batch": 2, "pipeline.strategy": "1F1B",
  "scopes": [{"name": "first", "split": 2, "match": ["b0*", "embedded", "hidden"]},
             {"name": "second", "split": 2, "match": ["*"]}])";

INSTANTIATE_TEST_SUITE_P(
    , Sequence,
    ::testing::Values(Layout{"gpt_2", BlockModel::gpt, 2, by_2}, Layout{"gpt_4", BlockModel::gpt, 4, by_4},
                      Layout{"llama_2", BlockModel::llama, 2, by_2}, Layout{"llama_4", BlockModel::llama, 4, by_4},
                      Layout{"bert_2", BlockModel::bert, 2, by_2}, Layout{"bert_4", BlockModel::bert, 4, by_4},
                      Layout{"beside_copies", BlockModel::gpt, 4, by_2},
                      Layout{"micro_batches", BlockModel::gpt, 2, by_2 + R"(, "pipeline.num_micro_batch": 2)"},
                      Layout{"stages", BlockModel::gpt, 4, in_stages},
                      Layout{"dropout_2", BlockModel::gpt, 2, by_2, true},
                      Layout{"dropout_4", BlockModel::llama, 4, by_4, true},
                      Layout{"dropout_beside_copies", BlockModel::gpt, 4, by_2, true},
                      Layout{"dropout_in_stages", BlockModel::gpt, 8, in_stages, true}),
    [](const auto& info) { return info.param.name; });

// A dropout is no reason to have all of what lies between.
TEST(SequenceDropout, IsInPiecesToo) {
  const std::string local = *plan_of({"", BlockModel::gpt, 2, by_2, true}, "data")->text(EntryKind::train, "local");
  EXPECT_NE(local.find("b0.proj.kept: f32[4,2,8], b0.proj.mask: bool[4,2,8] = dropout("), std::string::npos) << local;
}

// Of the values between the products a rank keeps its pieces.
TEST(SequenceMemory, IsLess) {
  const auto arena = [](const std::string& strategy) {
    return plan_of({"", BlockModel::gpt, 4, strategy}, "data")->arena_bytes(0);
  };
  EXPECT_LT(arena(by_4), arena(R"("default": {"split": 4})"));
}

}  // namespace
}  // namespace epl
