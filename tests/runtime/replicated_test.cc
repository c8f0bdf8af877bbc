// What cannot be cut is replicated, on every rank, and is said so: models without samples, nodes that look at all
// samples together, numbers drawn for other things than samples. The bits are those of one rank.
#include <gtest/gtest.h>

#include "tests/runtime/trained.h"

namespace epl::replicated_test {
namespace {

// It has no dimension that counts samples.
constexpr std::string_view no_samples = R"(graph mlp(x: f32[8,12]) {
  w1: f32[12,16] = param
  b1: f32[16] = param
  w2: f32[16,16] = param
  w3: f32[16,8] = param
  forward:
  h: f32[8,16] = matmul(x, w1)
  hb: f32[8,16] = add(h, b1)
  a: f32[8,16] = relu(hb)
  d: f32[8,16], m: bool[8,16] = dropout(a) {ratio=0.25}
  g: f32[8,16] = matmul(d, w2)
  skip: f32[8,16] = add(g, a)
  y: f32[8,8] = matmul(skip, w3)
  output y = y
}
)";

// Each sample is compared with all others, as in a contrastive loss; and scores are normalised over samples.
constexpr std::string_view coupled = R"(graph coupled(x: f32[8,12] batch 0) {
  w1: f32[12,16] = param
  w2: f32[12,16] = param
  forward:
  one: f32[8,16] = matmul(x, w1)
  other: f32[8,16] = matmul(x, w2)
  shares: f32[8,16] = softmax(other) {axis=0}
  scores: f32[8,8] = matmul(one, shares) {transpose_b=true}
  bounded: f32[8,8] = tanh(scores)
  y: f32[8,8] = add(bounded, scores)
  output y = y
}
)";

// A mean over the batch that depends on weights, as that of a batch norm.
constexpr std::string_view summed = R"(graph summed(x: f32[8,12] batch 0) {
  w1: f32[12,16] = param
  w2: f32[16,8] = param
  share: f32[] = const f32[](0.125)
  forward:
  h: f32[8,16] = matmul(x, w1)
  total: f32[1,16] = sum(h) {axes=[0]}
  mean: f32[1,16] = mul(total, share)
  centred: f32[8,16] = sub(h, mean)
  a: f32[8,16] = tanh(centred)
  y: f32[8,8] = matmul(a, w2)
  output y = y
}
)";

// Draws for a weight; for samples that stand behind the steps of time; and for samples behind a dimension of one.
constexpr std::string_view drawn = R"(graph drawn(x: f32[8,3,4] batch 0) {
  w1: f32[4,16] = param
  w2: f32[16,8] = param
  forward:
  kept: f32[4,16], m0: bool[4,16] = dropout(w1) {ratio=0.25}
  steps: f32[3,8,4] = transpose(x) {perm=[1,0,2]}
  h: f32[3,8,16] = matmul(steps, kept)
  rows: f32[24,16] = reshape(h) {shape=[24,16]}
  d1: f32[24,16], m1: bool[24,16] = dropout(rows) {ratio=0.25}
  again: f32[3,8,16] = reshape(d1) {shape=[3,8,16]}
  s: f32[8,16] = sum(again) {axes=[0], keep=false}
  lone: f32[1,8,16] = reshape(s) {shape=[1,8,16]}
  d2: f32[1,8,16], m2: bool[1,8,16] = dropout(lone) {ratio=0.25}
  back: f32[8,16] = reshape(d2) {shape=[8,16]}
  y: f32[8,8] = matmul(back, w2)
  output y = y
}
)";

// The weight is drawn once for all micro-batches.
constexpr std::string_view drawn_weight = R"(graph drawn(x: f32[8,12] batch 0) {
  w1: f32[12,16] = param
  w2: f32[16,8] = param
  forward:
  kept: f32[12,16], m0: bool[12,16] = dropout(w1) {ratio=0.25}
  h: f32[8,16] = matmul(x, kept)
  a: f32[8,16] = relu(h)
  y: f32[8,8] = matmul(a, w2)
  output y = y
}
)";

// A draw for each element, so that a sample at another rank's position shows.
constexpr std::string_view drawn_samples = R"(graph drawn(x: f32[8,12] batch 0) {
  w1: f32[12,16] = param
  w2: f32[16,8] = param
  forward:
  h: f32[8,16] = matmul(x, w1)
  d: f32[8,16], m0: bool[8,16] = dropout(h) {ratio=0.25}
  a: f32[8,16] = relu(d)
  y: f32[8,8] = matmul(a, w2)
  output y = y
}
)";

struct Layout {
  std::string name;
  int64_t ranks = 1;
  std::string strategy = "{}";
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

constexpr std::string_view stages = R"({"pipeline.num_micro_batch": 2, "pipeline.strategy": "1F1B", "scopes": [
  {"name": "first", "replicate": 1, "match": ["h*", "a", "d", "kept"]},
  {"name": "second", "replicate": 1, "match": ["*"]}]})";

Result<std::shared_ptr<const CompiledPlan>> plan_of(std::string_view model, const Layout& layout) {
  auto options = layout_options(GraphModel::parse(model), layout.ranks, layout.strategy);
  if (options.ok()) {
    if (model == no_samples) options->train.loss.target_batch_dim = -1;
    EPL_TRY(set_config(options->strategy, "reproducible.level", "layout"));
  }
  return layout_plan(options);
}

Trained trained(const Result<std::shared_ptr<const CompiledPlan>>& plan, const Layout& layout) {
  return train(plan, layout.name, 4, [&](int step) {
    Tensor x((*plan)->entry(EntryKind::train)->inputs[0].global_type), target(TensorType{DType::i64, {8}});
    for (int64_t i = 0; i < x.elements(); ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
    for (int i = 0; i < 8; ++i) target.set_int(i, (i + step) % 8);
    return std::vector<Tensor>{x, target};
  });
}

std::string notes_of(const CompiledPlan& plan) {
  std::string text;
  for (const std::string& note : plan.entries().front().plan.notes) text += cat(note, "\n");
  return text;
}

class Replicated : public ::testing::TestWithParam<Layout> {};

void expect_bits_of_one_rank(std::string_view model, const Layout& layout, const std::string& why) {
  const auto plan = plan_of(model, layout);
  expect_same(trained(plan, layout), trained(plan_of(model, {}), {}), layout.name);
  ASSERT_TRUE(plan.ok());
  EXPECT_NE(notes_of(**plan).find(why), std::string::npos) << notes_of(**plan);
}

TEST_P(Replicated, ModelsWithoutSamples) { expect_bits_of_one_rank(no_samples, GetParam(), ""); }
TEST_P(Replicated, WeightsThatAreDrawnFor) { expect_bits_of_one_rank(drawn_weight, GetParam(), ""); }

INSTANTIATE_TEST_SUITE_P(, Replicated,
                         ::testing::Values(Layout{"copies_2", 2}, Layout{"copies_4", 4},
                                           Layout{"micro_batches", 1, R"({"pipeline.num_micro_batch": 2})"},
                                           Layout{"copies_and_micro_batches", 2, R"({"pipeline.num_micro_batch": 4})"},
                                           Layout{"split_2", 2, R"({"default": {"split": 2}})"},
                                           Layout{"split_4", 4, R"({"default": {"split": 4}})"},
                                           Layout{"split_beside_copies", 4, R"({"default": {"split": 2}})"},
                                           Layout{"stages", 2, std::string(stages)},
                                           Layout{"stages_and_copies", 4, std::string(stages)}),
                         [](const auto& info) { return info.param.name; });

class Coupled : public ::testing::TestWithParam<Layout> {};

TEST_P(Coupled, NodesSeeAllSamples) {
  expect_bits_of_one_rank(coupled, GetParam(), "sees the full batch, on every rank");
}
TEST_P(Coupled, DrawsForAllSamples) {
  expect_bits_of_one_rank(drawn, GetParam(), "it draws random numbers in the order");
}

INSTANTIATE_TEST_SUITE_P(, Coupled,
                         ::testing::Values(Layout{"copies_2", 2}, Layout{"copies_4", 4},
                                           Layout{"split_beside_copies", 4, R"({"default": {"split": 2}})"}),
                         [](const auto& info) { return info.param.name; });

class Indivisible : public ::testing::TestWithParam<Layout> {};

// A batch of 8 over more shards, or over a number that does not divide it.
TEST_P(Indivisible, BatchesAreCutIntoFewerShards) {
  expect_bits_of_one_rank(drawn_samples, GetParam(), "the batch of 8 does not divide over");
}

INSTANTIATE_TEST_SUITE_P(, Indivisible,
                         ::testing::Values(Layout{"copies_16", 16}, Layout{"copies_3", 3}, Layout{"copies_12", 12},
                                           Layout{"micro_batches_16", 1, R"({"pipeline.num_micro_batch": 16})"},
                                           Layout{"micro_batches_12", 2, R"({"pipeline.num_micro_batch": 6})"},
                                           Layout{"copies_and_micro_batches", 4, R"({"pipeline.num_micro_batch": 4})"},
                                           Layout{"split_beside_copies", 12, R"({"default": {"split": 2}})"},
                                           Layout{"copies_of_a_weight_in_shards", 3, R"({"zero.level": "v0"})"},
                                           Layout{"colocated", 12,
                                                  R"({"cluster.colocate_split_and_replicate": true, "scopes": [
                        {"name": "head", "split": 2, "match": ["y"]}], "default": {"replicate": 1}})"},
                                           Layout{"stages_of_3_copies", 6, std::string(stages)}),
                         [](const auto& info) { return info.param.name; });

TEST(WhatIsReplicated, IsSaid) {
  const auto why = [](std::string_view model, const Layout& layout) {
    auto plan = plan_of(model, layout);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    return plan.ok() ? notes_of(**plan) : "";
  };
  EXPECT_NE(why(no_samples, {"", 2, R"({"pipeline.num_micro_batch": 4})"})
                .find("each of 2 copies computes all of it, and one micro-batch stands for 4"),
            std::string::npos);
  EXPECT_EQ(why(no_samples, {}), "");
  EXPECT_EQ(why(drawn_samples, {"", 4, R"({"pipeline.num_micro_batch": 2})"}), "");
  EXPECT_NE(why(drawn_samples, {"", 12, R"({"pipeline.num_micro_batch": 6})"})
                .find("the batch of 8 does not divide over 12 copies x 6 micro-batches, so it is cut into 8 shards: "
                      "each shard is computed by 3 copies, and one micro-batch stands for 3"),
            std::string::npos);
  EXPECT_NE(why(no_samples, {"", 3, R"({"default": {"split": 3}})"})
                .find("2 nodes, g, y (matmul), are replicated on each of 3"),
            std::string::npos);
}

// Over time samples never meet: the batch is not cut in time, whatever the schedule wants.
class CoupledOverTime : public ::testing::TestWithParam<Layout> {};

TEST_P(CoupledOverTime, TheBatchIsOneMicroBatch) {
  expect_bits_of_one_rank(coupled, GetParam(),
                          "node shares (softmax) couples the samples of the batch: the op needs the full batch at "
                          "once, so 4 micro-batches would change the answer: the batch is one");
  expect_bits_of_one_rank(summed, GetParam(),
                          "node total (sum) sums over the full batch and node centred uses the result for each "
                          "sample, so 4 micro-batches would change the answer: the batch is one");
}

INSTANTIATE_TEST_SUITE_P(
    , CoupledOverTime,
    ::testing::Values(
        Layout{"micro_batches", 1, R"({"pipeline.num_micro_batch": 4})"},
        Layout{"copies", 2, R"({"pipeline.num_micro_batch": 4})"},
        Layout{"stages", 4,
               R"({"pipeline.num_micro_batch": 4, "pipeline.strategy": "1F1B", "pipeline.num_stages": 2})"},
        Layout{"weights_apart", 2,
               R"({"pipeline.num_micro_batch": 4, "pipeline.strategy": "ZB-V", "pipeline.num_stages": 2})"},
        Layout{"dual_pipe", 4,
               R"({"pipeline.num_micro_batch": 4, "pipeline.strategy": "DualPipe-V", "pipeline.num_stages": 2})"},
        Layout{"interleaved", 2,
               R"({"pipeline.num_micro_batch": 4, "pipeline.strategy": "interleaved", "pipeline.num_stages": 2,
                   "pipeline.virtual_stages": 2})"}),
    [](const auto& info) { return info.param.name; });

TEST(WhatIsReplicated, IsReplicatedWhereItMustBe) {
  const auto plan = plan_of(coupled, {"", 1, R"({"pipeline.num_micro_batch": 4})"});
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ((*plan)->entry(EntryKind::train)->plan.micro_batches(), 1);
  EXPECT_EQ((*plan_of(drawn_samples, {"", 1, R"({"pipeline.num_micro_batch": 4})"}))
                ->entry(EntryKind::train)
                ->plan.micro_batches(),
            4);
  const std::string notes =
      notes_of(**plan_of(coupled, {"", 4, R"({"pipeline.num_micro_batch": 4, "pipeline.strategy": "DualPipe-V",
                                              "pipeline.num_stages": 2})"}));
  EXPECT_NE(notes.find("the schedule DualPipe-V needs 4 micro-batches for 2 ranks, not 1; so ranks go through their "
                       "stages one after another"),
            std::string::npos)
      << notes;
}

}  // namespace
}  // namespace epl::replicated_test
