// Splits into shards that are not equal: heads, hidden layers and vocabularies that the ranks do not divide, of which a
// rank may have none. The answer is that of one rank, and padding is seen by nobody.
#include <gtest/gtest.h>

#include "core/program/padding.h"
#include "core/strategy/plan.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"

namespace epl::uneven_split_test {
namespace {

// A transformer block: three heads of 4, a hidden layer of 21, 11 tokens. 21 is divided by 3 ranks, all else by none.
constexpr std::string_view block = R"(graph block(ids: i64[8,4] batch 0) {
  wte: f32[11,12] = param
  ln.weight: f32[12] = param
  ln.bias: f32[12] = param
  qkv.weight: f32[12,36] = param
  qkv.bias: f32[36] = param
  proj.weight: f32[12,12] = param
  proj.bias: f32[12] = param
  fc.weight: f32[12,21] = param
  fc.bias: f32[21] = param
  out.weight: f32[21,12] = param
  out.bias: f32[12] = param
  forward:
  x: f32[8,4,12] = gather(wte, ids)
  n: f32[8,4,12], n.1: f32[8,4,1], n.2: f32[8,4,1] = layer_norm(x, ln.weight, ln.bias) {axis=2}
  qkv: f32[8,4,36] = linear(n, qkv.weight, qkv.bias)
  thirds: f32[8,4,3,3,4] = reshape(qkv) {shape=[8,4,3,3,4]}
  q0: f32[8,4,1,3,4] = slice(thirds) {axes=[2], starts=[0], ends=[1], steps=[1]}
  k0: f32[8,4,1,3,4] = slice(thirds) {axes=[2], starts=[1], ends=[2], steps=[1]}
  v0: f32[8,4,1,3,4] = slice(thirds) {axes=[2], starts=[2], ends=[3], steps=[1]}
  q1: f32[8,4,3,4] = reshape(q0) {shape=[8,4,3,4]}
  k1: f32[8,4,3,4] = reshape(k0) {shape=[8,4,3,4]}
  v1: f32[8,4,3,4] = reshape(v0) {shape=[8,4,3,4]}
  q: f32[8,3,4,4] = transpose(q1) {perm=[0,2,1,3]}
  k: f32[8,3,4,4] = transpose(k1) {perm=[0,2,1,3]}
  v: f32[8,3,4,4] = transpose(v1) {perm=[0,2,1,3]}
  mixed: f32[8,3,4,4], mixed.1: f32[8,3,4] = attention(q, k, v) {scale=0.5, causal=true}
  m1: f32[8,4,3,4] = transpose(mixed) {perm=[0,2,1,3]}
  m2: f32[8,4,12] = reshape(m1) {shape=[8,4,12]}
  proj: f32[8,4,12] = linear(m2, proj.weight, proj.bias)
  r: f32[8,4,12] = add(x, proj)
  fc: f32[8,4,21] = linear(r, fc.weight, fc.bias)
  a: f32[8,4,21] = gelu(fc)
  out: f32[8,4,12] = linear(a, out.weight, out.bias)
  last: f32[8,4,12] = add(r, out)
  logits: f32[8,4,11] = matmul(last, wte) {transpose_b=true}
  output logits = logits
}
)";

// Three classes of images, seven channels, and a normalisation over samples whose channels are cut.
constexpr std::string_view images = R"(graph images(x: f32[8,3,6,6] batch 0) {
  c1.weight: f32[7,3,3,3] = param
  c1.bias: f32[7] = param
  c2.weight: f32[5,7,3,3] = param
  head.weight: f32[5,3] = param
  head.bias: f32[3] = param
  forward:
  h: f32[8,7,6,6] = conv(x, c1.weight, c1.bias) {pads=[1,1,1,1]}
  a: f32[8,7,6,6] = relu(h)
  g: f32[8,5,6,6] = conv(a, c2.weight) {pads=[1,1,1,1]}
  e: f32[8,5,6,6] = exp(g)
  l: f32[8,5,6,6] = log(e)
  m: f32[8,5] = sum(l) {axes=[2,3], keep=false}
  y: f32[8,3] = linear(m, head.weight, head.bias)
  output y = y
}
)";

struct Layout {
  std::string name;
  int64_t ranks = 1;
  std::string keys;
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

std::vector<Tensor> batch_of(std::string_view model, int step) {
  if (model == images) {
    Tensor x({DType::f32, {8, 3, 6, 6}}), target({DType::i64, {8}});
    for (int64_t i = 0; i < x.elements(); ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
    for (int i = 0; i < 8; ++i) target.set_int(i, (i + step) % 3);
    return {x, target};
  }
  Tensor ids({DType::i64, {8, 4}}), target({DType::i64, {8, 4}});
  for (int64_t i = 0; i < 32; ++i) {
    ids.set_int(i, (i * 7 + step * 3) % 11);
    target.set_int(i, (i * 5 + step) % 11);
  }
  target.set_int(31, -100);
  return {ids, target};
}

// Plain gradient descent: what rounding makes of a gradient that is zero stays small.
Result<std::shared_ptr<const CompiledPlan>> plan_of(std::string_view model, const Layout& layout,
                                                    const std::string& optimizer = "sgd") {
  auto options = layout_options(GraphModel::parse(model), layout.ranks, at_level("data", layout.keys));
  if (options.ok()) {
    options->train.optimizer = optimizer;
    options->train.optimizer_options = {{"lr", 0.1}, {"weight_decay", 0.01}};
  }
  return layout_plan(options);
}

Trained trained(std::string_view model, const Layout& layout) {
  return train(plan_of(model, layout), layout.name, 4, [&](int step) { return batch_of(model, step); });
}

class UnevenSplit : public ::testing::TestWithParam<Layout> {};

TEST_P(UnevenSplit, BlocksLearnWhatOneRankLearns) {
  expect_near(trained(block, GetParam()), trained(block, {}), GetParam().name, 1e-5, 1e-5, 1e-4);
}

TEST_P(UnevenSplit, ConvolutionsLearnWhatOneRankLearns) {
  if (GetParam().keys.find("scopes") != std::string::npos) GTEST_SKIP() << "its stages are those of the block";
  expect_near(trained(images, GetParam()), trained(images, {}), GetParam().name, 1e-5, 1e-5, 1e-4);
}

// Only what counts heads, hidden units and tokens.
TEST_P(UnevenSplit, CutsEveryWeightOfAProduct) {
  auto plan = plan_of(block, GetParam());
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  for (const char* name : {"wte", "qkv.weight", "qkv.bias", "proj.weight", "fc.weight", "fc.bias", "out.weight"}) {
    const StateSlot* slot = (*plan)->state().find(name);
    ASSERT_NE(slot, nullptr) << name;
    // What one stage lends to another one is replicated.
    if (GetParam().name == "in_stages" && slot->name == "wte") continue;
    EXPECT_LT(slot->local.bytes(), slot->type.bytes()) << name;
  }
}

double sum_of(const Tensor& values) {
  double sum = 0;
  for (int64_t i = 0; i < values.elements(); ++i) sum += std::abs(values.get(i));
  return sum;
}

// Of Adam as well, whose step divides zero by its own square root: no rank keeps anything but zeros there, and the
// norm by which gradients are clipped has no part of it.
TEST_P(UnevenSplit, PaddingOfStateStaysZero) {
  auto plan = plan_of(block, GetParam(), "adamw");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  auto session = Session::create(test_host(2), *plan, {.seed = 7});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  for (int step = 0; step < 3; ++step) {
    StepMetrics metrics;
    ASSERT_TRUE((*session)->step(batch_of(block, step), metrics).ok());
    EXPECT_TRUE(metrics.skipped.ok()) << metrics.skipped.to_string();
  }
  int uneven = 0;
  for (const StateSlot& slot : (*plan)->state().slots()) {
    if (!slot.sharding.uneven()) continue;
    ++uneven;
    for (const auto& rank : (*session)->world().ranks()) {
      const StateSlot* local = (*plan)->state_of(rank->virtual_device).find(slot.name);
      if (local == nullptr) continue;
      double values = 0;
      for (const PositionedBox& box : rank->store.boxes(*rank->stream, *local))
        values += sum_of(*box.as_tensor().load());
      const double held = sum_of(rank->store.shard(*rank->stream, *local));
      EXPECT_NEAR(held, values, 1e-9 * (1 + values)) << slot.name;
    }
  }
  EXPECT_GE(uneven, GetParam().ranks == 3 ? 3 : 9) << "weights, each with its two moments";
}

TEST_P(UnevenSplit, SavesAndLoadsUnderAnotherLayout) {
  const TemporaryFolder temporary;
  const std::string folder = temporary / "saved";
  auto session = Session::create(test_host(2), *plan_of(block, GetParam(), "adamw"), {.seed = 7});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  StepMetrics metrics;
  ASSERT_TRUE((*session)->step(batch_of(block, 0), metrics).ok());
  ASSERT_TRUE(save_session(**session, folder).ok());
  const Layout other_split{"other", 5, R"("default": {"split": 5})"};
  for (const Layout& layout : {Layout{}, GetParam(), other_split}) {
    auto other = Session::create(test_host(2), *plan_of(block, layout, "adamw"), {.seed = 1});
    ASSERT_TRUE(other.ok()) << other.status().to_string();
    const Status loaded = load_session(**other, folder);
    ASSERT_TRUE(loaded.ok()) << layout.name << ": " << loaded.to_string();
    for (const StateSlot& slot : (*session)->plan().state().slots())
      EXPECT_TRUE(identical(*(*other)->state().get(slot.name), *(*session)->state().get(slot.name)))
          << layout.name << slot.name;
    StepMetrics here, there;
    ASSERT_TRUE((*other)->step(batch_of(block, 1), there).ok());
    ASSERT_TRUE((*session)->step(batch_of(block, 1), here).ok());
    EXPECT_NEAR(here.loss, there.loss, 1e-5) << layout.name;
    ASSERT_TRUE(load_session(**session, folder).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(
    , UnevenSplit,
    testing::Values(Layout{"two", 2, R"("default": {"split": 2})"}, Layout{"three", 3, R"("default": {"split": 3})"},
                    Layout{"four", 4, R"("default": {"split": 4})"},
                    Layout{"beside_data", 8, R"("pipeline.num_micro_batch": 2, "default": {"split": 4})"},
                    Layout{"in_stages", 4, R"("pipeline.num_micro_batch": 2, "scopes": [
                      {"name": "first", "split": 2, "match": ["x", "n", "qkv", "thirds", "q*", "k*", "v*", "m*", "proj",
                        "r"]}, {"name": "second", "split": 2, "match": ["*"]}])"}),
    [](const auto& info) { return info.param.name; });

// Beside a split nothing changes a bit: not copies, not micro-batches.
TEST(UnevenSplits, GiveTheSameBitsBesideOtherCuts) {
  const Trained alone = trained(block, {"two", 2, R"("default": {"split": 2})"});
  for (const Layout& layout : {Layout{"copies", 4, R"("default": {"split": 2})"},
                               Layout{"turns", 2, R"("pipeline.num_micro_batch": 4, "default": {"split": 2})"}})
    expect_same(trained(block, layout), alone, layout.name);
}

// At level layout only what divides is cut, and the bits are those of one rank.
TEST(UnevenSplits, AreEqualAtLevelLayout) {
  const auto learned = [](const std::string& keys, int64_t ranks) {
    auto options = layout_options(GraphModel::parse(block), ranks, at_level("layout", keys));
    auto plan = layout_plan(options);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    if (plan.ok()) {
      for (const StateSlot& slot : (*plan)->state().slots()) EXPECT_FALSE(slot.sharding.uneven()) << slot.name;
    }
    return train(plan, keys, 3, [&](int step) { return batch_of(block, step); });
  };
  expect_same(learned(R"("default": {"split": 2})", 2), learned("", 1), "two");
}

}  // namespace
}  // namespace epl::uneven_split_test
