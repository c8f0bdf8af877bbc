// Gradients that are summed in 16 bits (`communication.fp16`): the bits of one rank under every kind of layout, half of
// the bytes between ranks, numbers near those of float32, and overflows that the verdict sees.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "tests/runtime/block_models.h"
#include "tests/runtime/skip_mlp.h"
#include "tests/runtime/trained.h"
#include "tests/thirds.h"

namespace epl::narrow_sums_test {
namespace {

struct Layout {
  std::string name = "one";
  int64_t ranks = 1;
  std::string keys = {};
  std::string level = "data";
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

using Made = Result<std::shared_ptr<const CompiledPlan>>;

std::string narrow(const std::string& type, const std::string& more = "") {
  return cat(R"("communication.fp16": true, "communication.fp16_type": ")", type, "\"", more.empty() ? "" : ", ", more);
}

Made plan_of(std::string_view model, const Layout& layout, const std::string& keys) {
  const std::string all = layout.keys.empty() || keys.empty() ? layout.keys + keys : cat(layout.keys, ", ", keys);
  return layout_plan(layout_options(GraphModel::parse(model), layout.ranks, at_level(layout.level, all)));
}

Trained trained(std::string_view model, const Layout& layout, const std::string& keys, int steps = 4) {
  return train(plan_of(model, layout, keys), layout.name, steps, skip_mlp_batch);
}

class NarrowSums : public ::testing::TestWithParam<Layout> {};

// With norms of gradients, which clip (layout_options).
TEST_P(NarrowSums, HaveTheBitsOfOneRank) {
  EPL_ONE_OF_THREE();
  const Layout one{.level = GetParam().level};
  for (const std::string_view model : {skip_mlp, dropout_mlp}) {
    for (const std::string type : {"f16", "bf16"})
      expect_same(trained(model, GetParam(), narrow(type)), trained(model, one, narrow(type)),
                  cat(type, ", ", GetParam().name));
  }
}

TEST_P(NarrowSums, HaveThemInMixedPrecision) {
  EPL_ONE_OF_THREE();
  const Layout one{.level = GetParam().level};
  const std::string keys = narrow("bf16", R"("amp.level": "O1")");
  expect_same(trained(skip_mlp, GetParam(), keys), trained(skip_mlp, one, keys), GetParam().name);
}

// The plan can be read again, and is the same.
TEST_P(NarrowSums, AreInThePlan) {
  const Made plan = plan_of(skip_mlp, GetParam(), narrow("f16"));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const std::string text = *(*plan)->text(EntryKind::train, "plan");
  EXPECT_NE(text.find(" reduced narrow f16 times 128 by units"), std::string::npos);
  const auto again = parse_plan(text, (*plan)->entry(EntryKind::train)->plan.graph);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(print_plan(*again), text);
}

std::vector<Layout> layouts() {
  const std::string one = R"("replicate": 1)", two = R"("replicate": 2)", four = R"("pipeline.num_micro_batch": 4)";
  const auto stages = [&](const std::string& schedule, const std::string& first, const std::string& second) {
    return cat(four, R"(, "pipeline.strategy": ")", schedule, "\", ", two_stages(first, second));
  };
  return {{"two", 2},
          {"four", 4},
          {"eight", 8},
          {"in_four", 1, four},
          {"two_in_four", 2, four},
          {"micro_batches_first", 2, cat(four, R"(, "batch.order": "micro_batches")")},
          {"shared_updates", 2, R"("zero.level": "v0")"},
          {"gradients_in_shards", 2, cat(four, R"(, "zero.level": "v1")")},
          {"weights_in_shards", 4, R"("pipeline.num_micro_batch": 2, "zero.level": "v2")"},
          {"one_forward_one_backward", 4, stages("1F1B", one, one)},
          {"late_weights", 2, stages("ZB-H1", one, one)},
          {"one_to_two", 3, stages("1F1B", one, two)},
          {"computed_again", 2, R"("gradient_checkpoint.type": "auto")"},
          {"split", 2, R"("default": {"split": 2})", "layout"}};
}
INSTANTIATE_TEST_SUITE_P(Layouts, NarrowSums, ::testing::ValuesIn(layouts()),
                         [](const auto& info) { return info.param.name; });

TEST(NarrowSumsOfIndependentMicroBatches, HaveTheBitsOfOneRank) {
  const std::string keys = narrow("f16", R"("pipeline.num_micro_batch": 4, "batch.semantics": "per_micro_batch")");
  const auto samples = [](int step) { return skip_mlp_samples(step, 32); };
  const std::string model = with_samples(skip_mlp, 32);
  const Trained one = train(plan_of(model, {}, keys), "one", 3, samples);
  expect_same(train(plan_of(model, {.ranks = 2}, keys), "two", 3, samples), one, "two");
}

TEST(NarrowSums, AreNearThoseOfFloat32AndOthers) {
  const Trained wide = trained(skip_mlp, {}, "", 6);
  for (const std::string type : {"f16", "bf16"}) {
    const Trained rounded = trained(skip_mlp, {}, narrow(type), 6);
    EXPECT_NE(rounded.losses, wide.losses) << type;
    expect_near(rounded, wide, type, 0.05, 0.15, 0.2);
  }
}

// A rank rounds what it has added up, for others alone.
TEST(NarrowSums, AtLevelRunOneRankRoundsNothing) {
  const std::string four = R"("pipeline.num_micro_batch": 4)";
  for (const std::string& keys : {std::string(), four}) {
    const Layout one{.keys = keys, .level = "run"};
    expect_same(trained(skip_mlp, one, narrow("f16")), trained(skip_mlp, one, ""), keys);
  }
  const Layout two{.ranks = 2, .level = "run"};
  const Trained rounded = trained(skip_mlp, two, narrow("bf16")), wide = trained(skip_mlp, two, "");
  EXPECT_NE(rounded.losses, wide.losses);
  expect_near(rounded, wide, "run", 0.05, 0.15, 0.2);
}

// What ranks give each other to be added up: bytes by type of gradients, and how many calls there are.
struct Summed {
  std::map<DType, int64_t> bytes;
  int calls = 0;
};
Summed summed(const Made& plan) {
  Summed out;
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  if (!plan.ok()) return out;
  for (const LocalGraph& local : (*plan)->entry(EntryKind::train)->locals) {
    for (const Node& node : local.graph.nodes()) {
      if (node.op->name != "all_reduce" && node.op->name != "reduce_scatter") continue;
      ++out.calls;
      for (const Value v : node.inputs) {
        const TensorType& type = local.graph.type(v);
        if (type.elements() > 1) out.bytes[type.dtype] += type.bytes();
      }
    }
  }
  return out;
}

TEST(NarrowSums, AreHalfOfTheBytesInAsManyCalls) {
  const std::string two = R"("pipeline.num_micro_batch": 2)";
  for (const std::string level : {"data", "run"}) {
    for (const Layout& layout :
         {Layout{"copies", 2, "", level}, Layout{"micro_batches", 2, two, level},
          Layout{"v0", 2, cat(two, R"(, "zero.level": "v0")"), level},
          Layout{"v1", 2, cat(two, R"(, "zero.level": "v1", "communication.max_splits": 1)"), level}}) {
      const std::string what = cat(layout.name, " at ", level);
      const Summed wide = summed(plan_of(skip_mlp, layout, "")),
                   half = summed(plan_of(skip_mlp, layout, narrow("f16")));
      ASSERT_TRUE(wide.bytes.contains(DType::f32) && half.bytes.contains(DType::f16)) << what;
      EXPECT_FALSE(half.bytes.contains(DType::f32)) << what;
      EXPECT_EQ(half.bytes.at(DType::f16) * 2, wide.bytes.at(DType::f32)) << what;
      EXPECT_EQ(half.calls, wide.calls) << what;
    }
  }
}

// float16 ends at 65,504.
TEST(NarrowSums, ThatOverflowAreSeenByTheVerdict) {
  const std::string most = narrow("f16", R"("communication.fp16_scale": 16777216)");
  for (const Layout& layout : {Layout{}, Layout{"two", 2}, Layout{"shards", 2, R"("zero.level": "v2")"}}) {
    const Made plan = plan_of(skip_mlp, layout, most);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    auto session = Session::create(test_host(2), *plan, {.seed = 7});
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    const Tensor before = *(*session)->state().get("w1");
    StepMetrics metrics;
    ASSERT_TRUE((*session)->step(skip_mlp_batch(0), metrics).ok());
    EXPECT_EQ(metrics.skipped.code(), Code::not_finite) << layout.name;
    EXPECT_TRUE(std::isfinite(metrics.loss));
    EXPECT_TRUE(identical(*(*session)->state().get("w1"), before)) << layout.name;
  }
}

TEST(NarrowSums, ThatOverflowHalveADynamicLossScale) {
  const std::string keys = narrow("f16", R"("communication.fp16_scale": 65536, "amp.level": "O1", "amp.type": "f16")");
  const Made plan = plan_of(skip_mlp, {.ranks = 2}, keys);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  auto session = Session::create(test_host(2), *plan, {.seed = 7});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  int skipped = 0;
  StepMetrics metrics;
  do {
    ASSERT_TRUE((*session)->step(skip_mlp_batch(0), metrics).ok());
    skipped += metrics.overflowed;
  } while (metrics.overflowed && skipped < 40);
  EXPECT_GT(skipped, 3);
  EXPECT_LT(skipped, 40);
  EXPECT_EQ((*session)->host_state().number("loss_scale").value(), std::ldexp(65536, -skipped));
}

// Without a scale small numbers of f16 are lost, and of bf16 they are not.
TEST(NarrowSums, AreScaledSoThatSmallGradientsStay) {
  std::string small(skip_mlp);
  const size_t at = small.find("  output y = y");
  small.replace(at, std::string::npos,
                "  tiny: f32[] = const f32[](0.00000001)\n  z: f32[8,4] = mul(y, tiny)\n  output y = z\n}\n");
  const size_t leaf = small.find("  tiny: "), end = small.find('\n', leaf) + 1;
  const std::string tiny = small.substr(leaf, end - leaf);
  small.erase(leaf, end - leaf);
  small.insert(small.find("  forward:"), tiny);
  const auto moved = [&](const std::string& keys) {
    const Made plan = plan_of(small, {}, keys);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    auto session = Session::create(test_host(2), *plan, {.seed = 7});
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    StepMetrics metrics;
    EXPECT_TRUE((*session)->step(skip_mlp_batch(0), metrics).ok());
    const Tensor first = *(*session)->state().get("w3.mean");
    double most = 0;
    for (int64_t i = 0; i < first.elements(); ++i) most = std::max(most, std::abs(first.get(i)));
    return most;
  };
  EXPECT_EQ(moved(narrow("f16", R"("communication.fp16_scale": 1)")), 0);
  EXPECT_GT(moved(narrow("f16", R"("communication.fp16_scale": 65536)")), 0);
  EXPECT_GT(moved(narrow("bf16")), 0);
}

void expect_refused(const Made& plan, std::initializer_list<std::string_view> parts) {
  ASSERT_FALSE(plan.ok());
  for (const std::string_view part : parts)
    EXPECT_NE(plan.status().message().find(part), std::string::npos) << part << ": " << plan.status().to_string();
}

TEST(NarrowSums, RefuseWhatCannotBe) {
  expect_refused(plan_of(skip_mlp, {}, narrow("f16", R"("communication.fp16_scale": 0)")), {"from 1 to"});
  expect_refused(plan_of(skip_mlp, {}, narrow("bf16", R"("communication.fp16_scale": 64)")), {"needs no scale"});
  expect_refused(plan_of(skip_mlp, {}, R"("communication.fp16_type": "bf16")"), {"communication.fp16 = true"});
  // Rows of a table that ranks share out.
  const Layout split{"split", 2, R"("default": {"split": 2})", "layout"};
  expect_refused(plan_of(block_model(BlockModel::gpt), split, narrow("bf16")),
                 {"reproducible.level = layout", "sums all units at once"});
}

}  // namespace
}  // namespace epl::narrow_sums_test
