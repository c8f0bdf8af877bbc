// split.sequence: what lies between the cut nodes of a split is in shards. The answer is that of one rank, at level
// `layout` to the bit, and a rank keeps less.
#include <gtest/gtest.h>

#include "core/compile/plan_memory.h"
#include "tests/runtime/block_models.h"
#include "tests/runtime/trained.h"
#include "tests/thirds.h"

namespace epl::sequence_test {
namespace {

struct Layout {
  std::string name;
  BlockModel model = BlockModel::gpt;
  int64_t ranks = 1;
  std::string strategy;    // keys and scopes
  std::string drops = "";  // behind this product of each block
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

std::string model_of(const Layout& layout) {
  std::string text = block_model(layout.model);
  for (const char* block : {"b0", "b1"}) {
    const std::string product = cat(block, ".", layout.drops);
    const size_t use = layout.drops.empty() ? std::string::npos : text.find(cat(", ", product, ")"));
    if (use == std::string::npos) continue;
    text.insert(use + 2 + product.size(), ".kept");
    text.insert(text.rfind('\n', use) + 1, cat("  ", product, ".kept: f32[4,4,8], ", product,
                                               ".mask: bool[4,4,8] = dropout(", product, ") {ratio=0.25}\n"));
  }
  return text;
}

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Layout& layout, const std::string& level) {
  return layout_plan(
      layout_options(GraphModel::parse(model_of(layout)), layout.ranks, at_level(level, layout.strategy)));
}

std::vector<Tensor> batch(int step) {
  Tensor ids(TensorType{DType::i64, {4, 4}}), target(ids.type());
  for (int i = 0; i < 16; ++i) {
    ids.set_int(i, (i * 7 + step) % 16);
    target.set_int(i, (i * 3 + step) % 16);
  }
  return {ids, target};
}

Trained trained(const Layout& layout, const std::string& level) {
  return train(plan_of(layout, level), layout.name, 3, batch);
}

class Sequence : public ::testing::TestWithParam<Layout> {
 protected:
  static Layout alone() { return {.model = GetParam().model, .drops = GetParam().drops}; }
};

TEST_P(Sequence, LearnsWhatOneRankLearns) {
  EPL_ONE_OF_THREE();
  expect_near(trained(GetParam(), "data"), trained(alone(), "data"), GetParam().name, 1e-5, 2e-4);
}

TEST_P(Sequence, HasTheBitsOfOneRankAtLevelLayout) {
  EPL_ONE_OF_THREE();
  const auto plan = plan_of(GetParam(), "layout");
  expect_same(train(plan, GetParam().name, 3, batch), trained(alone(), "layout"), GetParam().name);
  EXPECT_NE((*plan)->text(EntryKind::train, "local")->find("reduce_scatter"), std::string::npos);
}

const std::string by_2 = R"("default": {"split": 2}, "split.sequence": true)",
                  by_4 = R"("default": {"split": 4}, "split.sequence": true)",
                  by_3 = R"("default": {"split": 3}, "split.sequence": true)",
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
                      Layout{"dropout_2", BlockModel::gpt, 2, by_2, "proj"},
                      Layout{"dropout_4", BlockModel::llama, 4, by_4, "proj"},
                      Layout{"dropout_beside_copies", BlockModel::gpt, 4, by_2, "proj"},
                      Layout{"dropout_in_stages", BlockModel::gpt, 8, in_stages, "proj"}),
    [](const auto& info) { return info.param.name; });

class UnevenSequence : public ::testing::TestWithParam<Layout> {};

// 4 positions over 3 ranks are 2, 2 and none.
TEST_P(UnevenSequence, LearnsWhatOneRankLearns) {
  const Layout& layout = GetParam();
  const Layout alone = {.model = layout.model, .drops = layout.drops};
  const auto plan = plan_of(layout, "data");
  expect_near(train(plan, layout.name, 3, batch), trained(alone, "data"), layout.name, 1e-5, 2e-4);
  const std::string local = *(*plan)->text(EntryKind::train, "local");
  EXPECT_NE(local.find(".padded.runs.by_rank.shards.scattered"), std::string::npos) << local;
  if (!layout.drops.empty()) {
    EXPECT_NE(local.find("b0.out.kept: f32[4,2,8]"), std::string::npos) << local;
  }
}

INSTANTIATE_TEST_SUITE_P(, UnevenSequence,
                         ::testing::Values(Layout{"gpt", BlockModel::gpt, 3, by_3},
                                           Layout{"llama", BlockModel::llama, 3, by_3},
                                           Layout{"bert", BlockModel::bert, 3, by_3},
                                           Layout{"beside_copies", BlockModel::gpt, 6, by_3},
                                           Layout{"dropout", BlockModel::gpt, 3, by_3, "out"}),
                         [](const auto& info) { return info.param.name; });

// A dropout is no reason to have all of what lies between.
TEST(SequenceDropout, IsInShardsToo) {
  const std::string local =
      *(*plan_of({"", BlockModel::gpt, 2, by_2, "proj"}, "data"))->text(EntryKind::train, "local");
  EXPECT_NE(local.find("b0.proj.kept: f32[4,2,8], b0.proj.mask: bool[4,2,8] = dropout("), std::string::npos) << local;
}

// Of the values between the products a rank keeps its shards.
TEST(SequenceMemory, IsLess) {
  const auto arena = [](const std::string& strategy) {
    return PlanMemory(**plan_of({"", BlockModel::gpt, 4, strategy}, "data")).arena(0);
  };
  EXPECT_LT(arena(by_4), arena(R"("default": {"split": 4})"));
}

}  // namespace
}  // namespace epl::sequence_test
