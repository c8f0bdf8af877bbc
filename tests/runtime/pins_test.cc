// Where the user says in which dimension a value is cut: it is cut there, the answer stays, and what cannot be is
// refused by name.
#include <gtest/gtest.h>

#include "tests/runtime/trained.h"

namespace epl::pins_test {
namespace {

constexpr std::string_view model = R"(graph model(x: f32[8,12] batch 0) {
  w1: f32[12,16] = param
  b1: f32[16] = param
  w2: f32[16,10] = param
  w3: f32[10,6] = param
  forward:
  h: f32[8,16] = linear(x, w1, b1)
  a: f32[8,16] = relu(h)
  g: f32[8,10] = matmul(a, w2)
  t: f32[8,10] = tanh(g)
  y: f32[8,6] = matmul(t, w3)
  output y = y
}
)";

Result<std::shared_ptr<const CompiledPlan>> plan_of(int64_t ranks, const std::string& keys,
                                                    const std::string& level = "data") {
  return layout_plan(layout_options(GraphModel::parse(model), ranks, at_level(level, keys)));
}

std::vector<Tensor> batch_of(int step) {
  Tensor x({DType::f32, {8, 12}}), target({DType::i64, {8}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
  for (int i = 0; i < 8; ++i) target.set_int(i, (i + step) % 6);
  return {x, target};
}

// The dimension of a weight that is cut over ranks; -1: none.
int cut_of(const CompiledPlan& plan, std::string_view name) {
  const StateSlot& slot = *plan.state().find(name);
  for (int d = 0; d < slot.type.ndim(); ++d) {
    if (slot.local.shape[static_cast<size_t>(d)] != slot.type.shape[static_cast<size_t>(d)]) return d;
  }
  return -1;
}

std::string split(const std::string& dims, int64_t ranks = 2) {
  return cat(R"("default": {"split": )", ranks, dims.empty() ? "" : cat(R"(, "dims": {)", dims, "}"), "}");
}

TEST(Pins, SayWhereAWeightIsCut) {
  const auto chosen = *plan_of(2, split(""));
  for (const std::string name : {"w1", "w2", "w3"}) {
    for (int dim : {0, 1}) {
      for (int64_t ranks : {2, 3, 4}) {
        auto plan = plan_of(ranks, split(cat("\"", name, "\": ", dim), ranks));
        ASSERT_TRUE(plan.ok()) << name << " " << dim << ": " << plan.status().to_string();
        EXPECT_EQ(cut_of(**plan, name), dim) << name;
      }
    }
  }
  // The other one than is chosen without a pin.
  const int other = 1 - cut_of(*chosen, "w1");
  EXPECT_EQ(cut_of(**plan_of(2, split(cat("\"w1\": ", other))), "w1"), other);
  EXPECT_EQ(cut_of(**plan_of(2, split(R"("w1": -2)")), "w1"), 0) << "from the end";
  EXPECT_EQ(cut_of(**plan_of(2, split(R"("w1": 0, "w*": 1)")), "w1"), 0) << "the first that names it";
  EXPECT_EQ(cut_of(**plan_of(2, split(R"("w1": 0, "w*": 1)")), "w3"), 1);
}

TEST(Pins, LeaveTheAnswerAsItIs) {
  const auto learn = [](int64_t ranks, const std::string& keys) {
    return train(plan_of(ranks, keys), keys, 4, batch_of);
  };
  const Trained alone = learn(1, "");
  for (const std::string dims : {R"("w1": 0)", R"("w1": 0, "w2": 0, "w3": 0)", R"("w*": 1)", R"("a": 1)", R"("t": 1)",
                                 R"("g": 1, "w3": 0)", R"("w2": 1, "w3": 1)"}) {
    for (int64_t ranks : {2, 4}) expect_near(learn(ranks, split(dims, ranks)), alone, dims, 1e-5, 2e-3);
  }
}

// At level `layout` a sum that a pin cuts has the bits of one rank.
TEST(Pins, LeaveTheBitsAsTheyAreAtLevelLayout) {
  const auto learn = [](int64_t ranks, const std::string& keys) {
    return train(plan_of(ranks, keys, "layout"), keys, 4, batch_of);
  };
  const Trained alone = learn(1, "");
  for (const std::string dims : {R"("w1": 1)", R"("w2": 0)", R"("h": 1, "w2": 0)", R"("w3": 0)"}) {
    for (int64_t ranks : {2, 4}) expect_same(learn(ranks, split(dims, 2)), alone, cat(dims, " on ", ranks));
  }
}

// What is cut is decided within each stage, so stages leave the bits of one, with pins as without.
TEST(Pins, HoldInStages) {
  const auto learn = [](int64_t ranks, const std::string& keys) {
    return train(plan_of(ranks, keys), keys, 4, batch_of);
  };
  const Trained together = learn(2, split(R"("w1": 0, "w2": 1, "t": 1)"));
  const std::string stages = R"("pipeline.num_micro_batch": 2, "scopes": [
    {"name": "low", "split": 2, "match": ["h", "a"], "dims": {"w1": 0}},
    {"name": "high", "split": 2, "match": "*", "dims": {"w2": 1, "t": 1}}])";
  expect_near(together, learn(1, ""), "one rank", 1e-5, 2e-3);
  for (int64_t ranks : {4, 8}) expect_same(learn(ranks, stages), together, cat(ranks, " ranks"));
}

TEST(Pins, OfAScopeAroundOthersHoldInsideThem) {
  auto plan = plan_of(4, R"("default": {"replicate": 4, "dims": {"w1": 0},
    "scopes": [{"match": "*", "split": 2}]})");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(cut_of(**plan, "w1"), 0);
}

TEST(Pins, ThatCannotBeObeyedAreRefusedByName) {
  const auto refused = [](const std::string& keys, std::vector<std::string> words, int64_t ranks = 2,
                          const std::string& level = "data") {
    auto plan = plan_of(ranks, keys, level);
    ASSERT_FALSE(plan.ok()) << keys;
    for (const std::string& word : words)
      EXPECT_NE(plan.status().message().find(word), std::string::npos) << plan.status().message();
  };
  refused(split(R"("nothing": 0)"), {"scope default", "\"nothing\""});
  refused(split(R"("w4": 0)"), {"scope default", "\"w4\"", "did you mean w1"});
  refused(split(R"("w1": 2)"), {"scope default", "dimension 2 of w1", "f32[12,16]", "has 2 dimensions"});
  refused(split(R"("w1": -3)"), {"scope default", "dimension -3 of w1"});
  refused(split(R"("y": 1)"), {"dimension 1 of y", "leaves to the caller"});
  refused(split(R"("h": 0)"), {"dimension 0 of h", "over 2 ranks", "cut already, by the batch"});
  refused(split(R"("w1": 0, "h": 1)"), {"scope default", "dimension 0 of w1", "dimension 1 of h", "over 2 ranks",
                                        "node h (linear) cannot be cut so at once"});
  refused(split(R"("w2": 1)", 4), {"dimension 1 of w2", "over 4 ranks", "node g (matmul)", "level layout"}, 4,
          "layout");
  refused(R"("default": {"replicate": 2, "dims": {"w1": 0}})", {"scope default", "w1", "no ranks share out"});
  const auto stages = [](const std::string& dims) {
    return cat(R"("scopes": [{"name": "low", "split": 2, "match": ["h", "a"], "dims": {)", dims,
               R"(}}, {"name": "high", "split": 2, "match": "*"}])");
  };
  refused(stages(R"("a": 1)"), {"scope low", "dimension 1 of a", "nodes on other ranks need too"}, 4);
  refused(stages(R"("w2": 0)"), {"scope low", "\"w2\""}, 4);
  const auto parsed = parse_strategy(R"({"default": {"split": 2, "dims": {"w1": "rows"}}})");
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.status().message().find("\"w1\""), std::string::npos) << parsed.status().message();
}

}  // namespace
}  // namespace epl::pins_test
