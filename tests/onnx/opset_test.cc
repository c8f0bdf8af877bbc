// What an operator means at the opset of its file, and what of the standard the table of operators says.
// tests/python/opset_test.py holds the same against onnxruntime.
#include <gtest/gtest.h>

#include "core/ir/evaluate.h"
#include "frontends/onnx/onnx_op.h"
#include "frontends/onnx/operators.h"
#include "tests/onnx/make_model.h"

namespace epl::onnx::opset_test {
namespace {

using testing::attribute;
using testing::node;
using testing::port;

epl::Tensor f32(Shape shape, const std::vector<float>& values) {
  return epl::Tensor::from_floats(std::move(shape), values);
}

// y of x[2,2,2] -> y by `nodes`, at an opset.
Result<std::vector<float>> computed(const std::vector<testing::Message>& nodes, int64_t opset,
                                    const std::vector<testing::Message>& initializers = {}) {
  const testing::Parts parts{.nodes = nodes,
                             .initializers = initializers,
                             .inputs = {port("x", {"2", "2", "2"})},
                             .outputs = {port("y", {"a"})}};
  EPL_ASSIGN(epl::Graph graph, testing::import(testing::model(parts, {}, {.opset = opset})));
  const epl::Tensor x = f32({2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 9});
  EPL_ASSIGN(auto values, evaluate_graph(graph, {{graph.find("x"), x}}));
  const epl::Tensor y = values[graph.outputs[0].value.index];
  return std::vector<float>(y.as<float>().begin(), y.as<float>().end());
}

TEST(Opset, SoftmaxLookedAtMatricesUntilTwelve) {
  auto old = computed({node("Softmax", {"x"}, {"y"})}, 12), now = computed({node("Softmax", {"x"}, {"y"})}, 13);
  ASSERT_TRUE(old.ok() && now.ok());
  EXPECT_NEAR((*old)[0] + (*old)[1] + (*old)[2] + (*old)[3], 1, 1e-6);  // rows of four
  EXPECT_NEAR((*now)[0] + (*now)[1], 1, 1e-6);                          // rows of two
}

TEST(Opset, ListsAreAttributesOrInputs) {
  const std::vector<float> rows = {1, 5, 9, 15};
  auto old = computed({node("ReduceSum", {"x"}, {"y"}, {attribute("axes", Ints{2})})}, 7);
  auto now =
      computed({node("ReduceSum", {"x", "axes"}, {"y"})}, 13, {testing::tensor("axes", epl::Tensor::from_ints({2}))});
  ASSERT_TRUE(old.ok() && now.ok());
  EXPECT_EQ(*old, rows);
  EXPECT_EQ(*now, rows);
  auto slice =
      computed({node("Slice", {"x"}, {"y"},
                     {attribute("starts", Ints{1, 0}), attribute("ends", Ints{2, 1}), attribute("axes", Ints{0, 2})})},
               9);
  ASSERT_TRUE(slice.ok()) << slice.status().to_string();
  EXPECT_EQ(*slice, (std::vector<float>{4, 6}));
}

TEST(Opset, OperatorsThatWereWithdrawn) {
  const std::vector<testing::Message> up = {node("Upsample", {"x", "scales"}, {"y"})};
  const std::vector<testing::Message> scales = {testing::tensor("scales", f32({3}, {1, 1, 2}))};
  auto nine = computed(up, 9, scales), ten = computed(up, 10, scales);
  ASSERT_TRUE(nine.ok()) << nine.status().to_string();
  EXPECT_EQ(nine->size(), 16u);
  EXPECT_EQ((*nine)[1], 0);
  EXPECT_EQ(ten.status().code(), Code::unsupported);
}

// A step longer than the dimension takes one element.
TEST(Opset, AStepOfAnyLength) {
  const int64_t far = std::numeric_limits<int64_t>::max();
  auto ints = [](const char* name, int64_t value) { return testing::tensor(name, epl::Tensor::from_ints({value})); };
  auto y = computed({node("Slice", {"x", "s", "e", "a", "t"}, {"y"})}, 13,
                    {ints("s", 0), ints("e", far), ints("a", 0), ints("t", far)});
  ASSERT_TRUE(y.ok()) << y.status().to_string();
  EXPECT_EQ(*y, (std::vector<float>{0, 1, 2, 3}));
}

Result<epl::Graph> batch_norm(const testing::Names& outputs, int64_t opset, const std::string& result = "y") {
  std::vector<testing::Message> vectors;
  for (const char* name : {"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"})
    vectors.push_back(testing::tensor(name, f32({2}, {1, 2})));
  const testing::Parts parts{
      .nodes = {node("BatchNormalization", {"x", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"},
                     outputs)},
      .initializers = vectors,
      .inputs = {port("x", {"4", "2", "3"})},
      .outputs = {port(result, {"a"})}};
  return testing::import(testing::model(parts, {}, {.opset = opset}));
}

TEST(Opset, BatchNormalizationLearnsByItsOutputsUntilThirteen) {
  const testing::Names five = {"y", "m", "v", "saved_m", "saved_v"};
  for (int64_t opset : {7, 9, 13}) {
    auto learns = batch_norm(five, opset), frozen = batch_norm({"y"}, opset);
    ASSERT_TRUE(learns.ok()) << learns.status().to_string();
    ASSERT_TRUE(frozen.ok()) << frozen.status().to_string();
    EXPECT_EQ(learns->updates.size(), 2u);
    EXPECT_EQ(frozen->updates.size(), 0u);
    EXPECT_TRUE(batch_norm(five, opset, "m").ok());
    // What a runtime saved for its backward pass has no meaning for others.
    auto used = batch_norm(five, opset, "saved_v");
    EXPECT_EQ(used.status().code(), Code::unsupported);
    EXPECT_NE(used.status().to_string().find("saved_v"), std::string::npos) << used.status().to_string();
  }
}

TEST(Opset, AFrozenBatchNormalizationIsAFinding) {
  const epl::Tensor vector = f32({2}, {1, 2});
  for (bool learns : {false, true}) {
    testing::Names outputs = {"y"};
    if (learns) outputs.insert(outputs.end(), {"m", "v"});
    const testing::Parts parts{.nodes = {node("BatchNormalization", {"x", "s", "b", "mean", "var"}, outputs)},
                               .initializers = {testing::tensor("s", vector), testing::tensor("b", vector),
                                                testing::tensor("mean", vector), testing::tensor("var", vector)},
                               .inputs = {port("x", {"n", "2"})},
                               .outputs = {port("y", {"a"})}};
    auto model = testing::load(testing::model(parts, {}, {.opset = 9}));
    ASSERT_TRUE(model.ok());
    bool told = false;
    for (const ModelFinding& finding : (*model)->findings())
      told = told || finding.message.find("frozen") != std::string::npos;
    EXPECT_EQ(told, !learns);
  }
}

TEST(Opset, DropoutDropsWhereItsMaskIsNamed) {
  auto drops = [](const testing::Names& outputs, int64_t opset) {
    const testing::Parts parts{.nodes = {node("Dropout", {"x"}, outputs, {attribute("ratio", 0.25f)})},
                               .inputs = {port("x", {"4", "3"})},
                               .outputs = {port("y", {"a"})}};
    auto graph = testing::import(testing::model(parts, {}, {.opset = opset}));
    EXPECT_TRUE(graph.ok()) << graph.status().to_string();
    return graph.ok() && print_graph(*graph).find("dropout") != std::string::npos;
  };
  for (int64_t opset : {7, 10, 11}) {
    EXPECT_TRUE(drops({"y", "mask"}, opset));
    EXPECT_FALSE(drops({"y"}, opset));
  }
}

// A row that the standard does not know would never be held against it.
TEST(Opset, EveryRowIsAnOperatorOfTheStandard) {
  for (const OnnxOpRow& row : onnx_op_table().rows()) {
    const OperatorVersion* first = find_operator(row.domain, row.name, 0);
    ASSERT_NE(first, nullptr) << row.name;
    EXPECT_TRUE(row.since == 1 || row.since > first->since) << row.name << " " << row.since << " is never chosen";
    EXPECT_EQ(onnx_op_table().find(row.domain, row.name, std::max<int64_t>(row.since, first->since)), &row)
        << row.name << " " << row.since;
  }
}

}  // namespace
}  // namespace epl::onnx::opset_test
