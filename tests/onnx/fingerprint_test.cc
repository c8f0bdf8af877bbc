// What tells one model from another whatever its weights are: a change of anything that no checkpoint holds shows, by
// its name where it is a constant, and a change of weights does not.
#include <gtest/gtest.h>

#include "core/compile/compiled_plan.h"
#include "core/runtime/facts.h"
#include "tests/onnx/make_model.h"
#include "tests/runtime/graph_model.h"

namespace epl::onnx::fingerprint_test {
namespace {

using namespace testing;

epl::Tensor number(double value) { return epl::Tensor::scalar(DType::f32, value); }
epl::Tensor row(float a, float b) { return epl::Tensor::from_floats({2}, {a, b}); }

// Everything in which a file may hold numbers; each test changes one of them.
struct Numbers {
  double scalar = 2, in_node = 3, in_branch = 4, in_branch_node = 5, in_function = 6, by_default = 0.25,
         of_attribute = 7;
  float table = 8, mask = -1e30f, weight = 9, trained_also = 10, mean = 11;
  int64_t large = 12, opset = 20;
};

Message model_of(const Numbers& n) {
  epl::Tensor yes({DType::boolean, {}}), indices({DType::i64, {1024}});
  yes.set_int(0, 1);
  indices.set_int(1000, n.large);
  const Message taken = graph({.nodes = {node("Constant", {}, {"c"}, {attribute("value", number(n.in_branch_node))}),
                                         node("Mul", {"d", "c"}, {"e"}), node("Mul", {"e", "inner"}, {"f"})},
                               .initializers = {tensor("inner", number(n.in_branch))},
                               .outputs = {port("f", {"a"})}}),
                other = graph({.nodes = {node("Neg", {"d"}, {"g"})}, .outputs = {port("g", {"a"})}});
  const Message scaled =
      function("Scaled", {"a"}, {"r"},
               {node("Constant", {}, {"q"}, {attribute("value", number(n.in_function))}),
                node("Mul", {"a", "q"}, {"s"}), node("LeakyRelu", {"s"}, {"r"}, {reference("alpha", "slope")})},
               {}, {attribute("slope", static_cast<float>(n.by_default))});
  return model(
      {.nodes = {node("Mul", {"x", "k"}, {"a"}),
                 node("Constant", {}, {"held"}, {attribute("value", number(n.in_node))}),
                 node("Add", {"a", "held"}, {"b"}), node("Mul", {"b", "attn_mask"}, {"m"}),
                 node("Add", {"m", "eps"}, {"b2"}), node("MatMul", {"b2", "w.weight"}, {"h"}),
                 node("BatchNormalization", {"h", "n.weight", "n.bias", "n.running_mean", "n.running_var"}, {"n"}),
                 node("Mul", {"n", "also"}, {"d"}),
                 node("If", {"yes"}, {"i"}, {subgraph("then_branch", taken), subgraph("else_branch", other)}),
                 node("Scaled", {"i"}, {"j"}, {}, "own"), node("Shape", {"large"}, {"size"}),
                 node("ConstantOfShape", {"size"}, {"filled"},
                      {attribute("value", number(n.of_attribute).reshaped({1}))}),
                 node("ReduceMean", {"filled"}, {"one"}), node("Mul", {"j", "one"}, {"y"})},
       .initializers = {tensor("k", number(n.scalar)), tensor("eps", row(n.table, 1)),
                        tensor("attn_mask", row(n.mask, 0)),
                        tensor("w.weight", epl::Tensor::from_floats({2, 2}, {n.weight, 1, 2, 3})),
                        tensor("n.weight", row(n.weight, 1)), tensor("n.bias", row(n.weight, 1)),
                        tensor("n.running_mean", row(n.mean, 0)), tensor("n.running_var", row(n.mean, 1)),
                        tensor("also", number(n.trained_also)), tensor("yes", yes), tensor("large", indices)},
       .inputs = {port("x", {"n", "2"})},
       .outputs = {port("y", {"n", "2"})}},
      {scaled}, {.opset = n.opset});
}

const Binding binding = {.symbols = {{"n", 2}}, .parameters = {"also"}};

struct Told {
  uint64_t fingerprint = 0;
  std::map<std::string, std::string> constants;
};
Told told(const Numbers& numbers) {
  auto made = load(model_of(numbers));
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  if (!made.ok()) return {};
  auto bound = (*made)->bind(binding);
  EXPECT_TRUE(bound.ok()) << bound.status().to_string();
  return {(*made)->fingerprint(), (*made)->constants(binding)};
}

// The names of those that differ; all names are in both.
std::string differing(const Told& a, const Told& b) {
  std::string out;
  EXPECT_EQ(a.constants.size(), b.constants.size());
  for (const auto& [name, value] : a.constants) {
    const auto other = b.constants.find(name);
    if (other == b.constants.end() || other->second != value) out += cat(out.empty() ? "" : ", ", name);
  }
  return out;
}

TEST(Fingerprint, EveryConstantShowsByItsName) {
  const Told before = told({});
  const auto changed = [&](auto&& change) {
    Numbers numbers;
    change(numbers);
    const Told after = told(numbers);
    EXPECT_EQ(before.fingerprint, after.fingerprint) << "checkpoints from before constants were told stay readable";
    return differing(before, after);
  };
  EXPECT_EQ(changed([](Numbers& n) { n.scalar = 7; }), "constant k");
  EXPECT_EQ(changed([](Numbers& n) { n.table = 7; }), "constant eps");
  EXPECT_EQ(changed([](Numbers& n) { n.mask = -1e20f; }), "constant attn_mask");
  EXPECT_EQ(changed([](Numbers& n) { n.in_node = 7; }), "constant held");
  EXPECT_EQ(changed([](Numbers& n) { n.in_branch = 7; }), "constant node_i/inner");
  EXPECT_EQ(changed([](Numbers& n) { n.in_branch_node = 7; }), "constant node_i/c");
  EXPECT_EQ(changed([](Numbers& n) { n.in_function = 7; }), "constant own.Scaled/q");
  EXPECT_EQ(changed([](Numbers& n) { n.by_default = 0.5; }), "default own.Scaled/slope");
  EXPECT_EQ(changed([](Numbers& n) { n.of_attribute = 1; }), "constant filled.value");
  EXPECT_EQ(changed([](Numbers& n) { n.large = 1; }), "constant large");
  EXPECT_EQ(changed([](Numbers& n) { n.opset = 21; }), "opset ai.onnx");
  EXPECT_EQ(before.constants.at("constant k"), "2.0") << "a person reads it";
}

TEST(Fingerprint, WhatACheckpointHoldsDoesNotShow) {
  const Told before = told({});
  Numbers numbers;
  numbers.weight = 1;
  numbers.mean = 2;
  numbers.trained_also = 3;
  const Told after = told(numbers);
  EXPECT_EQ(before.fingerprint, after.fingerprint);
  EXPECT_EQ(differing(before, after), "");
}

// What a checkpoint says of a run, and a session that is to go on with it.
TEST(Fingerprint, ARunDoesNotGoOnWithOtherConstants) {
  const auto facts = [](const Numbers& numbers) {
    auto made = load(model_of(numbers));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    PlanOptions options;
    options.model = *made;
    options.training = false;
    options.binding = binding;
    auto plan = CompiledPlan::create(test_host(1), options);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    return plan.ok() ? describe_run(**plan) : Facts();
  };
  Numbers other;
  other.scalar = 7;
  other.weight = 1;
  const auto differences = compare_facts(facts({}), facts(other));
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].key, "model.constant k");
  EXPECT_EQ(differences[0].topic, "model");
  EXPECT_EQ(differences[0].saved, "2.0");
  EXPECT_EQ(differences[0].now, "7.0");
  EXPECT_TRUE(differences[0].breaks);
  Facts before = facts({});
  std::erase_if(before,
                [](const auto& fact) { return fact.first.starts_with("model.") && fact.first != "model.graph"; });
  EXPECT_TRUE(compare_facts(before, facts(other)).empty()) << "a checkpoint from before says nothing of constants";
}

// A file of very many constants says the first ones by name and all others together.
TEST(Fingerprint, ManyConstants) {
  const auto all = [](float last) {
    Parts parts = {.inputs = {port("x", {"n", "2"})}, .outputs = {port("y", {"n", "2"})}};
    for (int k = 0; k < 700; ++k) {
      parts.initializers.push_back(tensor(cat("c", k), number(k == 699 ? last : 1)));
      parts.nodes.push_back(node("Mul", {k == 0 ? "x" : cat("v", k - 1), cat("c", k)}, {k == 699 ? "y" : cat("v", k)}));
    }
    auto made = load(model(parts));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return Told{0, (*made)->constants(binding)};
  };
  EXPECT_LT(all(1).constants.size(), 600u);
  EXPECT_EQ(differing(all(1), all(2)), "constants besides");
}

}  // namespace
}  // namespace epl::onnx::fingerprint_test
