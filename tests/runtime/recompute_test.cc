// Results that the backward pass computes again (`gradient_checkpoint.type`): the bits of a plan that keeps them under
// every kind of layout, draws included, and less memory, known to the byte.
#include <gtest/gtest.h>

#include "core/compile/plan_decisions.h"
#include "core/compile/plan_file.h"
#include "core/compile/plan_memory.h"
#include "core/program/program.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/block_models.h"
#include "tests/runtime/trained.h"
#include "tests/thirds.h"

namespace epl::recompute_test {
namespace {

constexpr int layers = 8;

// `samples`: 8, or of independent micro-batches as many times that.
auto batch_of(int64_t samples) {
  return [samples](int step) {
    Tensor x(TensorType{DType::f32, {samples, 32, 8}}), target(TensorType{DType::i64, {samples, 32}});
    for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>((i * 37 + step * 11) % 101) / 50 - 1);
    for (int64_t i = 0; i < target.elements(); ++i) target.set_int(i, (i + step) % 4);
    return std::vector<Tensor>{x, target};
  };
}

struct Layout {
  std::string name;
  int64_t ranks = 1;
  std::string keys;
  int64_t samples = 8;
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

const std::string auto_key = R"("gradient_checkpoint.type": "auto")";
const std::string by_names = R"("gradient_checkpoint.type": "collection", "gradient_checkpoint.tensors": "r3, r6")";

std::string joined(const std::string& keys, const std::string& more) {
  return keys.empty() || more.empty() ? keys + more : cat(keys, ", ", more);
}

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Layout& layout, const std::string& more,
                                                    const std::string& device = "cpu") {
  auto options =
      layout_options(GraphModel::parse(deep_model(layers)), layout.ranks, at_level("data", joined(layout.keys, more)));
  if (options.ok()) options->device = device;
  return layout_plan(options);
}

int64_t arena(const CompiledPlan& plan) {
  int64_t bytes = 0;
  for (const Program& program : plan.entry(EntryKind::train)->programs)
    bytes = std::max(bytes, program.memories[0].arena_bytes);
  return bytes;
}

class Recompute : public ::testing::TestWithParam<Layout> {};

TEST_P(Recompute, HasTheBitsOfAPlanThatKeepsEverything) {
  EPL_ONE_OF_THREE();
  const Layout& layout = GetParam();
  const Trained kept = train(plan_of(layout, ""), layout.name, 6, batch_of(layout.samples));
  for (const std::string& keys : {auto_key, by_names})
    expect_same(train(plan_of(layout, keys), cat(layout.name, ", ", keys), 6, batch_of(layout.samples)), kept,
                layout.name);
}

TEST_P(Recompute, TakesLessMemory) {
  EPL_ONE_OF_THREE();
  const auto kept = plan_of(GetParam(), ""), less = plan_of(GetParam(), auto_key);
  ASSERT_TRUE(kept.ok() && less.ok()) << less.status().to_string();
  // Where gradients of weights wait for the end, what they take is kept until then, whoever has computed it.
  const bool late_weights = GetParam().keys.find("ZB-") != std::string::npos;
  EXPECT_LT(arena(**less), arena(**kept) + late_weights);
}

TEST_P(Recompute, HasTheSameBitsFarAway) {
  EPL_ONE_OF_THREE();
  const Layout& layout = GetParam();
  const std::string name = cat("far_recompute_", layout.name);
  add_backend(far_backend(name, 11));
  expect_same(train(plan_of(layout, auto_key, name), layout.name, 2, batch_of(layout.samples)),
              train(plan_of(layout, ""), layout.name, 2, batch_of(layout.samples)), layout.name);
}

constexpr std::string_view two_stages =
    R"("scopes": [{"name": "front", "replicate": 1, "match": ["?0", "?1", "?2", "?3"]},
                  {"name": "back", "replicate": 1, "match": ["*"]}])";

std::string stages(const std::string& schedule, int micro_batches) {
  return cat("\"pipeline.num_micro_batch\": ", micro_batches, ", \"pipeline.num_stages\": 2, \"pipeline.strategy\": \"",
             schedule, "\"");
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Recompute,
    ::testing::Values(Layout{"one", 1, ""}, Layout{"micro_batches", 1, R"("pipeline.num_micro_batch": 4)"},
                      Layout{"copies", 2, ""},
                      Layout{"copies_and_micro_batches", 2, R"("pipeline.num_micro_batch": 2, "zero.level": "v0")"},
                      Layout{"micro_batches_first", 2,
                             R"("pipeline.num_micro_batch": 2, "zero.level": "v0", "batch.order": "micro_batches")"},
                      Layout{"independent", 2, R"("pipeline.num_micro_batch": 2, "batch.semantics": "per_micro_batch")",
                             16},
                      Layout{"split", 2, R"("default": {"split": 2})"},
                      Layout{"split_by_sequence", 2, R"("default": {"split": 2}, "split.sequence": true)"},
                      Layout{"uneven_split", 3, R"("default": {"split": 3})"}, Layout{"gpipe", 2, stages("GPipe", 4)},
                      Layout{"one_f_one_b", 2, stages("1F1B", 4)}, Layout{"zb_h1", 2, stages("ZB-H1", 4)},
                      Layout{"zb_v", 2, stages("ZB-V", 4)}, Layout{"dual_pipe_v", 2, stages("DualPipe-V", 4)},
                      Layout{"interleaved", 2, stages("interleaved", 4) + R"(, "pipeline.virtual_stages": 2)"},
                      Layout{"scopes", 2, cat("\"pipeline.num_micro_batch\": 2, ", two_stages)},
                      Layout{"copies_of_stages", 4, stages("1F1B", 2)}),
    [](const auto& info) { return info.param.name; });

std::vector<Tensor> block_batch(int step) {
  Tensor ids(TensorType{DType::i64, {4, 4}}), next(TensorType{DType::i64, {4, 4}});
  for (int64_t i = 0; i < ids.elements(); ++i) {
    ids.set_int(i, (7 * i + 3 * step) % 16);
    next.set_int(i, (5 * i + step) % 16);
  }
  return {ids, next};
}

const std::string check_key = R"("gradient_checkpoint.check_gradients": true)";

// The first step compares them by itself, in a program that the plan knows to the byte.
void expect_checked(const Layout& layout, const std::string& more) {
  const std::string keys = joined(auto_key, more);
  const auto plan = plan_of(layout, joined(keys, check_key));
  ASSERT_TRUE(plan.ok()) << layout.name << ": " << plan.status().to_string();
  const Entry* check = (*plan)->entry(EntryKind::check);
  ASSERT_NE(check, nullptr) << layout.name;
  EXPECT_TRUE(check->plan.node_recomputed.empty());
  EXPECT_FALSE((*plan)->entry(EntryKind::train)->plan.node_recomputed.empty());
  expect_same(train(plan, layout.name, 2, batch_of(layout.samples)),
              train(plan_of(layout, keys), layout.name, 2, batch_of(layout.samples)), cat(layout.name, ", ", more));
}

TEST_P(Recompute, HasTheGradientsOfAPlanThatKeepsEverything) {
  EPL_ONE_OF_THREE();
  expect_checked(GetParam(), "");
}

TEST(RecomputeCheck, GoesWithOtherOptions) {
  for (const char* more : {R"("zero.level": "v1")", R"("zero.level": "v2")", R"("amp.level": "O1", "amp.type": "f16")",
                           R"("offload.level": "v0", "offload.values": "states, weights, gradients, activations")"})
    expect_checked({"copies", 2, R"("pipeline.num_micro_batch": 2)"}, more);
  const std::string name = "far_check";
  add_backend(far_backend(name, 11));
  const Layout layout{"far away", 2, R"("pipeline.num_micro_batch": 2)"};
  expect_same(train(plan_of(layout, joined(auto_key, check_key), name), layout.name, 2, batch_of(8)),
              train(plan_of(layout, ""), layout.name, 2, batch_of(8)), layout.name);
}

TEST(RecomputeCheck, NeedsMoreThanABudgetAllows) {
  EXPECT_EQ(plan_of({}, check_key).status().code(), Code::invalid_argument) << "nothing is computed again";
  const auto kept = plan_of({}, ""), auto_plan = plan_of({}, auto_key);
  ASSERT_TRUE(kept.ok() && auto_plan.ok());
  const int64_t most = PlanMemory(**kept).peak(), least = PlanMemory(**auto_plan).peak();
  const std::string roomy = cat("\"memory.budget\": \"", most, "\""), tight = cat("\"memory.budget\": \"", least, "\"");
  EXPECT_TRUE(plan_of({}, joined(roomy, check_key)).ok());
  EXPECT_TRUE(plan_of({}, tight).ok());
  const auto refused = plan_of({}, joined(tight, check_key));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("check without a budget"), std::string::npos)
      << refused.status().to_string();
}

// What a file has decided is compared with what follows from it.
TEST(RecomputeCheck, FollowsFromAPlanFile) {
  const std::string keys = joined(auto_key, check_key);
  const auto made = plan_of({}, keys);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  auto options = layout_options(GraphModel::parse(deep_model(layers)), 1, at_level("data", keys));
  ASSERT_TRUE(options.ok());
  const auto file = parse_plan_file(print_plan_file(decisions_of(**made, "a version")));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  options->decisions = std::make_shared<const PlanFile>(*file);
  const auto read = layout_plan(options);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*(*read)->text(EntryKind::check, "program"), *(*made)->text(EntryKind::check, "program"));
}

// Attention, norms, biases and products in two blocks, cut over heads.
TEST(RecomputeBlocks, HaveTheSameBits) {
  for (const BlockModel kind : {BlockModel::gpt, BlockModel::llama, BlockModel::bert}) {
    for (const std::string keys : {"", R"("default": {"split": 2})", R"("pipeline.num_micro_batch": 2)"}) {
      const auto plan = [&](const std::string& more) {
        return layout_plan(layout_options(GraphModel::parse(block_model(kind)),
                                          keys.find("split") < keys.size() ? 2 : 1,
                                          at_level("data", joined(keys, more))));
      };
      const std::string names =
          R"("gradient_checkpoint.type": "collection", "gradient_checkpoint.tensors": "b0*out, b1*out")";
      const Trained kept = train(plan(""), keys, 4, block_batch);
      expect_same(train(plan(names), keys, 4, block_batch), kept, keys);
      expect_same(train(plan(auto_key), keys, 4, block_batch), kept, keys);
    }
  }
}

TEST(RecomputeChoice, EndsWithATaskGraph) {
  const Layout layout{"", 2, cat("\"pipeline.num_micro_batch\": 2, ", two_stages)};
  const auto one = plan_of(layout, joined(auto_key, R"("gradient_checkpoint.end_taskgraph": 0)"));
  ASSERT_TRUE(one.ok()) << one.status().to_string();
  const Plan& plan = (*one)->entry(EntryKind::train)->plan;
  int first = 0;
  for (const NodeId n : plan.graph->node_ids()) {
    if (!plan.node_recomputed[n]) continue;
    EXPECT_EQ(plan.node_task_graph[n], 0) << plan.graph->node(n).name;
    ++first;
  }
  EXPECT_GT(first, 0);
}

TEST(RecomputeChoice, RefusesNamesThatNameNothing) {
  const auto plan =
      plan_of({}, R"("gradient_checkpoint.type": "collection", "gradient_checkpoint.tensors": "r3, nothing*")");
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("\"nothing*\" names no result of the forward pass"), std::string::npos)
      << plan.status().to_string();
  const auto alone = plan_of({}, R"("gradient_checkpoint.tensors": "r3")");
  ASSERT_FALSE(alone.ok());
  EXPECT_NE(alone.status().message().find("gradient_checkpoint.type"), std::string::npos);
}

// Of 8 layers, each with four results that the backward pass takes, the results between a few are kept.
TEST(RecomputeChoice, SavesMostOfADeepModel) {
  const auto kept = plan_of({}, ""), less = plan_of({}, auto_key);
  ASSERT_TRUE(kept.ok() && less.ok());
  EXPECT_LT(arena(**less), arena(**kept) * 2 / 3) << arena(**less) << " of " << arena(**kept);
}

}  // namespace
}  // namespace epl::recompute_test
