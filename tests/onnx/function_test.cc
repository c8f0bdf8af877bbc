// Calls of local functions: attributes of the body that refer to the call's, wherever in the body they stand.
#include <gtest/gtest.h>

#include "core/ir/evaluate.h"
#include "frontends/onnx/operators.h"
#include "tests/onnx/make_model.h"

namespace epl::onnx::function_test {
namespace {

using namespace testing;

#define EXPECT_SAID(text, status)                                                              \
  do {                                                                                         \
    const std::string said = (status).to_string();                                             \
    EXPECT_NE(said.find(text), std::string::npos) << "\"" << text << "\" is not in: " << said; \
  } while (false)

const epl::Tensor truth = epl::Tensor::scalar(DType::boolean, 1);
const Message yes = tensor("yes", truth);

// An If around `nodes`, which compute `name`_in; it gives `name`.
Message branch(const std::string& name, const std::vector<Message>& nodes) {
  const Message taken = graph({.nodes = nodes, .outputs = {port(name + "_in", {"a"})}}),
                other = graph({.nodes = {node("Relu", {"a"}, {name + "_no"})}, .outputs = {port(name + "_no", {"a"})}});
  return node("If", {"yes"}, {name}, {subgraph("then_branch", taken), subgraph("else_branch", other)});
}

Result<std::vector<float>> computed(const Message& bytes) {
  EPL_ASSIGN(epl::Graph made, import(bytes));
  const epl::Tensor x = epl::Tensor::from_floats({2, 2, 2}, {-3, 1, -2, 3, 4, -5, 6, 9});
  EPL_ASSIGN(auto values, evaluate_graph(made, {{made.find("x"), x}}));
  const epl::Tensor y = values[made.outputs[0].value.index];
  return std::vector<float>(y.as<float>().begin(), y.as<float>().end());
}

Parts around(const std::vector<Message>& nodes) {
  return {.nodes = nodes, .initializers = {yes}, .inputs = {port("x", {"2", "2", "2"})}, .outputs = {port("y", {"a"})}};
}

// An operator with an attribute of each type; `make` writes it under the name that the node or the call has for it.
struct Case {
  std::string op, attribute;
  bool leaf = false;  // the operator has no operand
  std::function<Message(const std::string& name)> make;
};
const std::vector<Case> cases = {
    {"LeakyRelu", "alpha", false, [](const std::string& name) { return testing::attribute(name, 0.3f); }},
    {"Softmax", "axis", false, [](const std::string& name) { return testing::attribute(name, int64_t{0}); }},
    {"Transpose", "perm", false, [](const std::string& name) { return testing::attribute(name, Ints{1, 2, 0}); }},
    {"Gelu", "approximate", false, [](const std::string& name) { return testing::attribute(name, "tanh"); }},
    {"Constant", "value_floats", true,
     [](const std::string& name) { return testing::attribute(name, std::vector<float>{2, 3}); }},
    {"Constant", "value", true,
     [](const std::string& name) { return testing::attribute(name, epl::Tensor::from_floats({2}, {4, 5})); }}};

// The node of a case in a function: within `depth` branches, or in a function that is called from there.
std::vector<Message> functions_of(const Case& c, int depth, bool called, bool by_default) {
  std::string name = depth == 0 ? "c" : "c_in";
  for (int k = 1; k < depth; ++k) name += "_in";
  const Names operands = c.leaf ? Names{} : Names{"a"};
  const Message refers = reference(c.attribute, "given");
  Message made = called ? node("Inner", {"a"}, {name}, {reference("passed", "given")}, "own")
                        : node(c.op, operands, {name}, {refers});
  for (int k = 0; k < depth; ++k) {
    name.resize(name.size() - 3);
    made = branch(name, {made});
  }
  std::vector<Message> body = {made};
  if (depth > 0) body.insert(body.begin(), node("Constant", {}, {"yes"}, {testing::attribute("value", truth)}));
  std::vector<Message> out = {function("Outer", {"a"}, {"c"}, body, by_default ? Names{} : Names{"given"},
                                       by_default ? std::vector{c.make("given")} : std::vector<Message>{})};
  if (called)
    out.push_back(function("Inner", {"a"}, {"c"},
                           {
                               branch("c", {node(c.op, operands, {"c_in"}, {reference(c.attribute, "passed")})}),
                           },
                           {"passed"}));
  return out;
}

TEST(Function, AttributesAreThoseOfTheCallAtAnyDepth) {
  for (const Case& c : cases) {
    const Names operands = c.leaf ? Names{} : Names{"x"};
    const auto wanted = computed(model(around({node(c.op, operands, {"y"}, {c.make(c.attribute)})})));
    ASSERT_TRUE(wanted.ok()) << wanted.status().to_string();
    for (int depth = 0; depth <= 3; ++depth) {
      for (bool by_default : {false, true}) {
        SCOPED_TRACE(cat(c.op, ".", c.attribute, ", depth ", depth, by_default ? ", by default" : ""));
        const std::vector<Message> given = by_default ? std::vector<Message>{} : std::vector{c.make("given")};
        const auto got = computed(
            model(around({node("Outer", {"x"}, {"y"}, given, "own")}), functions_of(c, depth, false, by_default)));
        ASSERT_TRUE(got.ok()) << got.status().to_string();
        EXPECT_EQ(*got, *wanted);
      }
    }
  }
}

TEST(Function, AbsentAttributesHaveTheOperatorsDefault) {
  for (const Case& c : cases) {
    const Names operands = c.leaf ? Names{} : Names{"x"};
    const auto wanted = computed(model(around({node(c.op, operands, {"y"})})));
    EXPECT_EQ(wanted.ok(), !c.leaf);
    for (int depth = 0; depth <= 3; ++depth) {
      SCOPED_TRACE(cat(c.op, ".", c.attribute, ", depth ", depth));
      const auto got =
          computed(model(around({node("Outer", {"x"}, {"y"}, {}, "own")}), functions_of(c, depth, false, false)));
      ASSERT_EQ(got.ok(), wanted.ok()) << got.status().to_string();
      EXPECT_EQ(got.ok() ? *got : std::vector<float>(), wanted.ok() ? *wanted : std::vector<float>());
    }
  }
}

// The body of a function that a branch calls knows what its own call gives, at every step of the way.
TEST(Function, CallsInsideBranchesHandAttributesOn) {
  for (const Case& c : cases) {
    for (int depth = 0; depth <= 2; ++depth) {
      std::vector<Message> functions = functions_of(c, depth, true, false);
      // Inner takes its condition from outside of the branch as well.
      functions[1] = function(
          "Inner", {"a"}, {"c"},
          {node("Constant", {}, {"yes"}, {testing::attribute("value", truth)}),
           branch("c", {node(c.op, c.leaf ? Names{} : Names{"a"}, {"c_in"}, {reference(c.attribute, "passed")})})},
          {"passed"});
      const auto wanted =
          computed(model(around({node(c.op, c.leaf ? Names{} : Names{"x"}, {"y"}, {c.make(c.attribute)})})));
      const auto got = computed(model(around({node("Outer", {"x"}, {"y"}, {c.make("given")}, "own")}), functions));
      SCOPED_TRACE(cat(c.op, ".", c.attribute, ", depth ", depth));
      ASSERT_TRUE(got.ok()) << got.status().to_string();
      EXPECT_EQ(*got, *wanted);
    }
  }
}

TEST(Function, RequiredAttributesAreMissedByNode) {
  for (int depth = 0; depth <= 2; ++depth) {
    const Case concat{"Concat", "axis", false,
                      [](const std::string& name) { return testing::attribute(name, int64_t{0}); }};
    const auto got =
        computed(model(around({node("Outer", {"x"}, {"y"}, {}, "own")}), functions_of(concat, depth, false, false)));
    ASSERT_FALSE(got.ok());
    EXPECT_SAID("Concat: attribute axis is missing", got.status());
    EXPECT_SAID("node_c", got.status());
    const auto wrong = computed(model(around({node("Outer", {"x"}, {"y"}, {testing::attribute("given", 0.5f)}, "own")}),
                                      functions_of(concat, depth, false, false)));
    EXPECT_SAID("attribute axis is of type float; it must be int", wrong.status());
  }
}

TEST(Function, ReferencesThatNothingGives) {
  const Message refers = node("LeakyRelu", {"x"}, {"y"}, {reference("alpha", "slope")});
  EXPECT_SAID("no function is around it", load(model(around({refers}))).status());
  EXPECT_SAID(
      "no function is around it",
      load(model(around({branch("y", {node("LeakyRelu", {"x"}, {"y_in"}, {reference("alpha", "slope")})})}))).status());
  const Message typo =
      function("Outer", {"x"}, {"y"}, {node("LeakyRelu", {"x"}, {"y"}, {reference("alpha", "slop")})}, {"slope"});
  EXPECT_SAID(
      "did you mean slope?",
      load(model(around({node("Outer", {"x"}, {"y"}, {testing::attribute("slope", 0.5f)}, "own")}), {typo})).status());
}

// What a row asks of an attribute is its value or an error, also where the standard does not know the operator.
TEST(Function, AttributesHaveOneType) {
  namespace codes = schema::AttributeProto;
  Attribute a{.name = "alpha", .type = codes::AttributeType_FLOAT, .fields = 1u << codes::f, .f = 1};
  EXPECT_TRUE(check_attribute(a, codes::AttributeType_FLOAT).ok());
  EXPECT_SAID("it must be int", check_attribute(a, codes::AttributeType_INT));
  a.fields |= 1u << codes::i;
  EXPECT_SAID("holds a value of type int", check_attribute(a, codes::AttributeType_FLOAT));
  a.type = 0;
  EXPECT_SAID("does not say its type", check_attribute(a, codes::AttributeType_FLOAT));
  a.ref = "slope";
  EXPECT_SAID("refers to attribute slope", check_attribute(a, codes::AttributeType_FLOAT));
}

// An operand that a call does not give is absent in the branches of the body too.
TEST(Function, AbsentOperandsAreAbsentInBranches) {
  const Message yes_node = node("Constant", {}, {"yes"}, {testing::attribute("value", truth)});
  const Message clip =
      function("Outer", {"a", "low"}, {"c"}, {yes_node, branch("c", {node("Clip", {"a", "low"}, {"c_in"})})});
  Parts parts = around({node("Outer", {"x"}, {"y"}, {}, "own")});
  const auto got = computed(model(parts, {clip}));
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ((*got)[0], -3);
  parts.nodes = {node("Outer", {"x", "zero"}, {"y"}, {}, "own")};
  parts.initializers.push_back(tensor("zero", epl::Tensor::scalar(DType::f32, 0)));
  const auto clipped = computed(model(parts, {clip}));
  ASSERT_TRUE(clipped.ok()) << clipped.status().to_string();
  EXPECT_EQ((*clipped)[0], 0);
}

// A graph is an attribute as well. Its names would mean something else in the function.
TEST(Function, GraphsAreHandedOver) {
  const auto outer = [](const Message& taken) {
    return function("Outer", {"a", "yes"}, {"c"},
                    {node("If", {"yes"}, {"c"}, {reference("then_branch", "given"), subgraph("else_branch", taken)})},
                    {"given"});
  };
  const Message own =
      graph({.nodes = {node("Constant", {}, {"k"}, {testing::attribute("value_floats", std::vector<float>{7})})},
             .outputs = {port("k", {"a"})}});
  const Message capturing = graph({.nodes = {node("Neg", {"x"}, {"n"})}, .outputs = {port("n", {"a"})}});
  const auto got =
      computed(model(around({node("Outer", {"x", "yes"}, {"y"}, {subgraph("given", own)}, "own")}), {outer(own)}));
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(*got, std::vector<float>{7});
  const auto refused = computed(
      model(around({node("Outer", {"x", "yes"}, {"y"}, {subgraph("given", capturing)}, "own")}), {outer(own)}));
  EXPECT_SAID("give that to the function as an input", refused.status());
}

}  // namespace
}  // namespace epl::onnx::function_test
