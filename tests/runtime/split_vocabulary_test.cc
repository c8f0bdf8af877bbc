// A split of the vocabulary: ranks share out the rows of an embedding and the classes of a loss, and nobody holds all
// scores of a position.
#include <gtest/gtest.h>

#include <cmath>

#include "core/compile/plan_memory.h"
#include "core/runtime/session.h"
#include "tests/runtime/block_models.h"
#include "tests/runtime/graph_model.h"

namespace epl::split_vocabulary_test {
namespace {

Result<std::shared_ptr<const CompiledPlan>> plan_of(BlockModel kind, int64_t ranks, int64_t split) {
  PlanOptions options;
  options.model = GraphModel::parse(block_model(kind));
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "adamw";
  options.train.optimizer_options = {{"lr", 0.01}};
  options.ranks = ranks;
  if (split > 1) {
    EPL_ASSIGN(options.strategy, parse_strategy(cat(R"({"default": {"split": )", split, "}}")));
  }
  return CompiledPlan::create(test_host(2), options);
}

// Token ids and the classes after them; one target does not count.
std::vector<Tensor> batch(int step, int64_t last = -100) {
  Tensor ids({DType::i64, {4, 4}}), target({DType::i64, {4, 4}});
  for (int64_t i = 0; i < 16; ++i) {
    ids.set_int(i, (i * 7 + step * 3) % 16);
    target.set_int(i, (i * 5 + step) % 16);
  }
  target.set_int(15, last);
  return {ids, target};
}

class Vocabulary : public ::testing::TestWithParam<std::tuple<BlockModel, int, int>> {};

TEST_P(Vocabulary, LearnsWhatOneRankLearns) {
  const auto [kind, ranks, split] = GetParam();
  auto alone = Session::create(test_host(2), *plan_of(kind, 1, 1), {.seed = 7});
  auto plan = plan_of(kind, ranks, split);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  auto session = Session::create(test_host(2), *plan, {.seed = 7});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  for (int step = 0; step < 4; ++step) {
    StepMetrics one, other;
    ASSERT_TRUE((*alone)->step(batch(step), one).ok() && (*session)->step(batch(step), other).ok());
    EXPECT_NEAR(one.loss, other.loss, 1e-5) << "step " << step;
  }
  for (const StateSlot& slot : (*plan)->state().slots()) {
    const Tensor found = *(*session)->state().get(slot.name), wanted = *(*alone)->state().get(slot.name);
    for (int64_t i = 0; i < wanted.elements(); ++i) {
      // Some gradients are zero but for rounding, which Adam makes large.
      if (slot.name.find(".weight") != std::string::npos || slot.name == "wte") {
        ASSERT_NEAR(found.get(i), wanted.get(i), 2e-3) << slot.name << " " << i;
      }
    }
  }
  EXPECT_EQ((*session)->memory_bytes_used(), PlanMemory(**plan).peak());
}

TEST_P(Vocabulary, IsNeverReplicated) {
  const auto [kind, ranks, split] = GetParam();
  auto plan = plan_of(kind, ranks, split);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const std::string local = *(*plan)->text(EntryKind::train, "local");
  EXPECT_NE(local.find("state wte f32[16,8] @ [split, -]"), std::string::npos) << local;
  EXPECT_EQ(local.find("all_gather("), std::string::npos) << local;
}

// A class or token that there is not makes the step a skipped one, whatever the rank that would have it.
TEST_P(Vocabulary, NoticesWhatIsNotInIt) {
  const auto [kind, ranks, split] = GetParam();
  auto session = Session::create(test_host(2), *plan_of(kind, ranks, split), {.seed = 7});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  StepMetrics metrics;
  EXPECT_FALSE((*session)->step(batch(0, 16), metrics).ok());
  EXPECT_TRUE((*session)->step(batch(0, 15), metrics).ok());
  EXPECT_TRUE(std::isfinite(metrics.loss));
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<BlockModel, int, int>>& info) {
  const std::string names[] = {"Gpt", "Llama", "Bert"};
  return cat(names[static_cast<size_t>(std::get<0>(info.param))], std::get<2>(info.param), "Of",
             std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(OnTwo, Vocabulary,
                         ::testing::Combine(::testing::Values(BlockModel::gpt, BlockModel::llama, BlockModel::bert),
                                            ::testing::Values(2, 4), ::testing::Values(2)),
                         name_of);

}  // namespace
}  // namespace epl::split_vocabulary_test
