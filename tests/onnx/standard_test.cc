// Nodes that are not as the standard has them: an attribute that nobody reads would leave a damaged file training on a
// default.
#include <gtest/gtest.h>

#include "frontends/onnx/operator_table.h"
#include "tests/onnx/make_model.h"

namespace epl::onnx::standard_test {
namespace {

using testing::attribute;
using testing::import;
using testing::Message;
using testing::node;
using testing::port;

// What a model of one node, x[2,3] and k to y, is told.
std::string told(const Message& node, int64_t opset = 20, Shape shape = {2, 3},
                 const epl::Tensor& k = epl::Tensor::from_floats({3}, {1, 2, 3})) {
  std::vector<std::string> dims;
  for (int64_t size : shape) dims.push_back(std::to_string(size));
  auto graph = import(testing::model({.nodes = {node},
                                      .initializers = {testing::tensor("k", k)},
                                      .inputs = {port("x", dims)},
                                      .outputs = {port("y", {"a"})}},
                                     {}, {.opset = opset}));
  if (graph.ok()) return "accepted";
  EXPECT_NE(graph.status().to_string().find("node_y"), std::string::npos) << graph.status().to_string();
  return graph.status().to_string();
}

#define EXPECT_TOLD(message, ...) EXPECT_NE((__VA_ARGS__).find(message), std::string::npos) << (__VA_ARGS__)

TEST(Standard, AttributesThatItDoesNotHave) {
  EXPECT_EQ(told(node("Transpose", {"x"}, {"y"}, {attribute("perm", Ints{1, 0})})), "accepted");
  EXPECT_TOLD("has no attribute pesm; there are: perm",
              told(node("Transpose", {"x"}, {"y"}, {attribute("pesm", Ints{1, 0})})));
  EXPECT_TOLD("it has none", told(node("Relu", {"x"}, {"y"}, {attribute("alpha", 1.0f)})));
  EXPECT_TOLD("has no attribute axes", told(node("ReduceSum", {"x"}, {"y"}, {attribute("axes", Ints{1})}), 23));
  EXPECT_EQ(told(node("ReduceSum", {"x"}, {"y"}, {attribute("axes", Ints{1})}), 12), "accepted");
  EXPECT_EQ(told(node("Relu", {"x"}, {"y"}, {attribute("__note", 1.0f)})), "accepted");  // a runtime's own
}

TEST(Standard, AttributesGivenWrongly) {
  EXPECT_TOLD("axis is of type float; it must be int", told(node("Softmax", {"x"}, {"y"}, {attribute("axis", 1.0f)})));
  EXPECT_TOLD("axis is given twice",
              told(node("Softmax", {"x"}, {"y"}, {attribute("axis", int64_t{1}), attribute("axis", int64_t{0})})));
  EXPECT_TOLD("axis is missing", told(node("Concat", {"x", "x"}, {"y"})));
  Message says_int = attribute("axis", 1.0f);
  protozero::pbf_writer(says_int).add_enum(schema::AttributeProto::type, schema::AttributeProto::AttributeType_INT);
  EXPECT_TOLD("says that it is of type int, and holds a value of type float",
              told(node("Softmax", {"x"}, {"y"}, {says_int})));
  Message untyped;
  protozero::pbf_writer(untyped).add_string(schema::AttributeProto::name, "axis");
  EXPECT_TOLD("does not say its type", told(node("Softmax", {"x"}, {"y"}, {untyped})));
}

TEST(Standard, TextsThatMeanNothing) {
  EXPECT_TOLD("may be constant, edge, reflect",
              told(node("Pad", {"x"}, {"y"}, {attribute("pads", Ints{0, 0, 0, 0}), attribute("mode", "mirror")}), 9));
  EXPECT_TOLD("approximate is \"erf\"", told(node("Gelu", {"x"}, {"y"}, {attribute("approximate", "erf")})));
  EXPECT_TOLD("auto_pad is \"SAME\"",
              told(node("MaxPool", {"x"}, {"y"}, {attribute("kernel_shape", Ints{2}), attribute("auto_pad", "SAME")}),
                   20, {1, 2, 5}));
  const epl::Tensor at = epl::Tensor::from_ints({0, 1}).reshaped({1, 2});
  EXPECT_TOLD("reduction is \"sum\"",
              told(node("ScatterElements", {"x", "k", "x"}, {"y"}, {attribute("reduction", "sum")}), 20, {1, 2}, at));
}

TEST(Standard, AxesThatAreNotThere) {
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax", "LayerNormalization"}) {
    for (int64_t axis : {-3, 2}) {
      if (std::string_view(op) == "LayerNormalization") {
        EXPECT_TOLD(cat("axis ", axis, " of a tensor with 2 dimensions"),
                    told(node(op, {"x", "k"}, {"y"}, {attribute("axis", axis)})));
      } else {
        EXPECT_TOLD(cat("axis ", axis, " of a tensor with 2 dimensions"),
                    told(node(op, {"x"}, {"y"}, {attribute("axis", axis)})));
      }
    }
  }
  const epl::Tensor far = epl::Tensor::from_ints({-3}), twice = epl::Tensor::from_ints({1, -1});
  EXPECT_TOLD("axis -3", told(node("CumSum", {"x", "k"}, {"y"}), 20, {2, 3}, far.reshaped({})));
  EXPECT_TOLD("axis -3", told(node("ReduceSum", {"x", "k"}, {"y"}), 20, {2, 3}, far));
  EXPECT_TOLD("listed twice", told(node("ReduceSum", {"x", "k"}, {"y"}), 20, {2, 3}, twice));
  EXPECT_TOLD("axis -3", told(node("Squeeze", {"x", "k"}, {"y"}), 20, {2, 1}, far));
  EXPECT_TOLD("axis 9", told(node("Concat", {"x", "x"}, {"y"}, {attribute("axis", int64_t{9})})));
  EXPECT_TOLD("axis 9", told(node("Gather", {"x", "k"}, {"y"}, {attribute("axis", int64_t{9})}), 20, {2, 3},
                             epl::Tensor::from_ints({0})));
  EXPECT_TOLD("axis 9", told(node("Split", {"x"}, {"y"}, {attribute("axis", int64_t{9})}), 17));
}

TEST(Standard, NumbersOfOperands) {
  EXPECT_TOLD("2 inputs; Relu of opset 6 takes 1", told(node("Relu", {"x", "x"}, {"y"})));
  EXPECT_TOLD("3 inputs; Add of opset 7 takes 2", told(node("Add", {"x", "x", "x"}, {"y"})));
  EXPECT_TOLD("takes 1 or more", told(node("Sum", {}, {"y"})));
  EXPECT_TOLD("2 outputs; Relu of opset 6 gives 1", told(node("Relu", {"x"}, {"y", "z"})));
  EXPECT_EQ(told(node("Clip", {"x", "", ""}, {"y"})), "accepted");
  EXPECT_EQ(told(node("Relu", {"x", ""}, {"y"})), "accepted");  // a name left empty at the end says nothing
}

// Computed as if it had them, the mean of integers is that of factors that integers round to zero.
TEST(Standard, TypesThatAnInputDoesNotHave) {
  const epl::Tensor integers = epl::Tensor::from_ints({1, 2, 3});
  EXPECT_TOLD("input 0 is i64[3], and the standard's Mean takes there real numbers; cast it before",
              told(node("Mean", {"k", "k"}, {"y"}), 20, {2, 3}, integers));
  EXPECT_TOLD("input 1 is i64[3], and the standard's Mean takes",
              told(node("Mean", {"x", "k"}, {"y"}), 20, {3}, integers));
  EXPECT_TOLD("takes there i32, i64; cast it", told(node("Gather", {"x", "k"}, {"y"})));
  for (const char* op : {"GlobalAveragePool", "Sigmoid", "Softmax", "Sqrt"})
    EXPECT_TOLD("takes there real numbers", told(node(op, {"k"}, {"y"}), 20, {2, 3}, integers));
  EXPECT_EQ(told(node("Abs", {"k"}, {"y"}), 20, {2, 3}, integers), "accepted");
}

TEST(Standard, BranchesAndFunctionsAreHeldToIt) {
  const auto branch = [](const Message& inner) {
    return testing::graph({.nodes = {inner}, .outputs = {port("b", {"a"})}});
  };
  epl::Tensor yes(TensorType{DType::boolean, {}});
  yes.set_int(0, 1);
  const Message fine = branch(node("Relu", {"x"}, {"b"})),
                bad = branch(node("LeakyRelu", {"x"}, {"b"}, {attribute("alqha", 0.5f)}));
  auto graph = import(
      testing::model({.nodes = {node("If", {"yes"}, {"y"},
                                     {testing::subgraph("then_branch", fine), testing::subgraph("else_branch", bad)})},
                      .initializers = {testing::tensor("yes", yes)},
                      .inputs = {port("x", {"2"})},
                      .outputs = {port("y", {"a"})}}));
  EXPECT_TOLD("alqha", graph.status().to_string());
  // The value of an attribute that the body refers to is known where the function is called.
  const Message leak = testing::function(
      "Leak", {"a"}, {"c"}, {node("LeakyRelu", {"a"}, {"c"}, {testing::reference("alpha", "slope")})}, {"slope"});
  for (bool real : {true, false}) {
    const Message call =
        node("Leak", {"x"}, {"y"}, {real ? attribute("slope", 0.5f) : attribute("slope", int64_t{1})}, "own");
    auto called =
        import(testing::model({.nodes = {call}, .inputs = {port("x", {"2"})}, .outputs = {port("y", {"a"})}}, {leak}));
    EXPECT_EQ(called.ok(), real) << called.status().to_string();
    if (real) continue;
    EXPECT_TOLD("it must be float", called.status().to_string());
  }
  const Message twice =
      testing::function("F", {"a"}, {"c"}, {node("LeakyRelu", {"a"}, {"c"}, {attribute("alqha", 0.5f)})});
  EXPECT_TOLD("function own.F", testing::load(testing::model({.nodes = {node("F", {"x"}, {"y"}, {}, "own")},
                                                              .inputs = {port("x", {"2"})},
                                                              .outputs = {port("y", {"a"})}},
                                                             {twice}))
                                    .status()
                                    .to_string());
}

// One bit of one attribute's name, of every operator of every opset.
TEST(Standard, NoNameWithAFlippedBitIsAccepted) {
  int accepted = 0, tried = 0;
  for (const OperatorVersion& version : operator_table) {
    std::vector<std::string> names;
    for (std::string_view rest = version.attributes; !rest.empty();) {
      names.emplace_back(rest.substr(0, rest.find(':')));
      rest.remove_prefix(
          std::min(rest.size(), rest.find(' ') == std::string_view::npos ? rest.size() : rest.find(' ') + 1));
    }
    for (const std::string& name : names) {
      for (size_t at = 0; at < name.size() * 8; ++at) {
        std::string flipped = name;
        flipped[at / 8] = static_cast<char>(flipped[at / 8] ^ (1 << at % 8));
        if (std::ranges::find(names, flipped) != names.end()) continue;
        Node made;
        made.op_type = version.name;
        made.domain = version.domain;
        made.inputs.assign(static_cast<size_t>(version.min_inputs), "x");
        made.outputs.assign(static_cast<size_t>(version.min_outputs), "y");
        Attribute a;
        a.name = flipped;
        a.ref = "any";  // of whatever type
        made.attributes = {a};
        const Status status = check_node(made, version.since);
        accepted += status.ok();
        tried += status.message().find("has no attribute") != std::string::npos;
      }
    }
  }
  EXPECT_EQ(accepted, 0);
  EXPECT_GT(tried, 10'000);
}

}  // namespace
}  // namespace epl::onnx::standard_test
