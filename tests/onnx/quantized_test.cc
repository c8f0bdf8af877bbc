// Weights that are stored as integers: initialisers like any other, trained as real numbers and written as such.
#include "frontends/onnx/quantized.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/onnx/make_model.h"
#include "tests/temporary_folder.h"

namespace epl::onnx::quantized_test {
namespace {

namespace fs = std::filesystem;
using testing::Message;
using testing::node;
using testing::port;
using testing::tensor;

epl::Tensor integers(DType dtype, const Shape& shape, const std::vector<int64_t>& values) {
  epl::Tensor out(TensorType{dtype, shape});
  for (size_t i = 0; i < values.size(); ++i) out.set_int(static_cast<int64_t>(i), values[i]);
  return out;
}

const epl::Tensor q = integers(DType::i8, {2, 3}, {1, -2, 3, -128, 5, 127});
const epl::Tensor table = integers(DType::u8, {2, 3}, {0, 128, 255, 1, 2, 3});

// x @ (q less its zero points, times a scale for each column) + a bias of 32-bit integers, then @ a square made by a
// cast and a scale.
Message model(std::vector<Message> more_nodes = {}, std::vector<Message> more_outputs = {}) {
  testing::Parts parts;
  parts.nodes = {
      node("DequantizeLinear", {"q", "scale", "zero"}, {"w"}, {testing::attribute("axis", int64_t{1})}),
      node("DequantizeLinear", {"bq", "one_scale"}, {"b"}),
      node("Gemm", {"x", "w", "b"}, {"h"}),
      node("Cast", {"square"}, {"real"}, {testing::attribute("to", int64_t{schema::TensorProto::DataType_FLOAT})}),
      node("Mul", {"real", "small"}, {"layer.weight"}),
      node("Sub", {"layer.weight", "layer.weight"}, {"unused"}),
      node("Transpose", {"layer.weight"}, {"t"}, {testing::attribute("perm", Ints{1, 0})}),
      node("MatMul", {"h", "t"}, {"y"})};
  parts.nodes.insert(parts.nodes.end(), more_nodes.begin(), more_nodes.end());
  parts.initializers = {tensor("q", q),
                        tensor("scale", epl::Tensor::from_floats({3}, {0.5F, 2, 0.25F})),
                        tensor("zero", integers(DType::i8, {3}, {1, 0, -1})),
                        tensor("bq", integers(DType::i32, {3}, {7, -9, 11})),
                        tensor("one_scale", epl::Tensor::from_floats({}, {0.1F})),
                        tensor("square", table),
                        tensor("small", epl::Tensor::from_floats({1}, {0.125F}))};
  parts.inputs = {port("x", {"n", "2"})};
  parts.outputs = {port("y", {"n", "2"})};
  parts.outputs.insert(parts.outputs.end(), more_outputs.begin(), more_outputs.end());
  return testing::model(parts, {}, {.opset = 17});
}

const epl::Tensor w = epl::Tensor::from_floats({2, 3}, {0, -4, 1, -64.5F, 10, 32});
const epl::Tensor b = epl::Tensor::from_floats({3}, {7 * 0.1F, -9 * 0.1F, 11 * 0.1F});
const epl::Tensor layer = epl::Tensor::from_floats({2, 3}, {0, 16, 31.875F, 0.125F, 0.25F, 0.375F});

epl::Tensor data(const epl::Graph& graph, const char* name) {
  const Value v = graph.find(name);
  return v ? *graph.value(v).data.load() : epl::Tensor();
}

TEST(QuantizedWeights, AreParametersOfRealNumbers) {
  auto loaded = testing::load(model());
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  std::vector<std::string> listed;
  for (const ModelInitializer& one : (*loaded)->initializers()) listed.push_back(cat(one.name, " ", one.type.text()));
  for (const char* wanted : {"w f32[2,3]", "b f32[3]", "layer.weight f32[2,3]"})
    EXPECT_NE(std::ranges::find(listed, wanted), listed.end()) << wanted;
  auto graph = (*loaded)->bind({.symbols = {{"n", 4}}});
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  std::vector<std::string> trained;
  for (Value v : graph->leaves(ValueKind::parameter)) trained.push_back(graph->value(v).name);
  std::ranges::sort(trained);
  EXPECT_EQ(trained, (std::vector<std::string>{"b", "layer.weight", "w"})) << "the scales belong to the integers";
  EXPECT_TRUE(identical(data(*graph, "w"), w));
  EXPECT_TRUE(identical(data(*graph, "b"), b));
  EXPECT_TRUE(identical(data(*graph, "layer.weight"), layer));
  // They are computed when they are read, in pieces too.
  const epl::Tensor stored = graph->value(graph->find("w")).data;
  EXPECT_FALSE(stored.in_memory());
  float last[2] = {};
  ASSERT_TRUE(stored.read(16, 8, last).ok());
  EXPECT_EQ(last[0], 10);
  EXPECT_EQ(last[1], 32);
  bool told = false;
  for (const ModelFinding& finding : (*loaded)->findings())
    told = told || (finding.where == "w" && finding.message.starts_with("3 weights (15 numbers)"));
  EXPECT_TRUE(told);
}

// The integers, and the nodes that made real numbers of them, go; a file in which nothing was trained stays as it is.
TEST(QuantizedWeights, AreWrittenAsRealNumbers) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.onnx";
  auto loaded = testing::load(model());
  ASSERT_TRUE(loaded.ok());
  const epl::Tensor nine = epl::Tensor::from_floats({2, 3}, {9, 8, 7, 6, 5, 4}),
                    bias = epl::Tensor::from_floats({3}, {1, 2, 3});
  for (bool for_inference : {false, true}) {
    ASSERT_TRUE((*loaded)
                    ->save(path, {{"w", nine}, {"b", bias}, {"layer.weight", layer}}, {.for_inference = for_inference})
                    .ok());
    auto again = load_model(path);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    std::vector<std::string> names;
    for (const ModelInitializer& one : (*again)->initializers()) names.push_back(one.name);
    std::ranges::sort(names);
    EXPECT_EQ(names, (std::vector<std::string>{"b", "layer.weight", "w"}));
    for (const auto& [op, count] : (*again)->op_counts())
      EXPECT_TRUE(op != "DequantizeLinear" && op != "Cast" && op != "Mul") << op;
    auto graph = (*again)->bind({.symbols = {{"n", 4}}});
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    EXPECT_TRUE(identical(data(*graph, "w"), nine));
    EXPECT_TRUE(identical(data(*graph, "b"), bias));
    EXPECT_TRUE(identical(data(*graph, "layer.weight"), layer));
  }
  EXPECT_EQ((*loaded)->save(path, {{"w", bias}}).code(), Code::invalid_argument);
  ASSERT_TRUE((*loaded)->save(path, {}).ok());
  std::ifstream file(path, std::ios::binary);
  EXPECT_EQ((std::string{std::istreambuf_iterator<char>(file), {}}), model());
}

TEST(QuantizedWeights, LeaveWhatOthersRead) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.onnx";
  auto loaded = testing::load(model({node("Identity", {"q"}, {"as_stored"})},
                                    {port("as_stored", {"2", "3"}, schema::TensorProto::DataType_INT8)}));
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  ASSERT_TRUE((*loaded)->save(path, {{"w", w}}).ok());
  auto again = load_model(path);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  std::vector<std::string> names;
  for (const ModelInitializer& one : (*again)->initializers()) names.push_back(one.name);
  EXPECT_NE(std::ranges::find(names, "q"), names.end());
  EXPECT_EQ(std::ranges::find(names, "scale"), names.end());
  EXPECT_NE(std::ranges::find(names, "w"), names.end());
  EXPECT_NE(std::ranges::find(names, "bq"), names.end()) << "b was not replaced";
}

// One number is not a weight, but a vector of one is the bias of a layer with one output.
TEST(QuantizedWeights, MayBeABiasOfOneNumber) {
  testing::Parts parts;
  parts.nodes = {node("DequantizeLinear", {"bq", "s"}, {"bias"}), node("Gemm", {"x", "w", "bias"}, {"y"})};
  parts.initializers = {tensor("bq", integers(DType::i32, {1}, {-6})),
                        tensor("s", epl::Tensor::from_floats({}, {0.5F})),
                        tensor("w", epl::Tensor::from_floats({3, 1}, {1, 2, 3}))};
  parts.inputs = {port("x", {"2", "3"})};
  parts.outputs = {port("y", {"2", "1"})};
  auto loaded = testing::load(testing::model(parts, {}, {.opset = 17}));
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  auto graph = (*loaded)->bind({});
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(graph->leaves(ValueKind::parameter).size(), 2u);
  EXPECT_TRUE(identical(data(*graph, "bias"), epl::Tensor::from_floats({1}, {-3})));
}

// Numbers that scale a result, and positions that are cast and no more, are left to their nodes.
TEST(QuantizedWeights, AreNotSeenWhereTheyAreNone) {
  testing::Parts parts;
  parts.nodes = {
      node("Cast", {"q"}, {"c"}, {testing::attribute("to", int64_t{schema::TensorProto::DataType_FLOAT})}),
      node("Mul", {"c", "s"}, {"table"}),
      node("Mul", {"x", "table"}, {"z"}),
      node("Cast", {"positions"}, {"p"}, {testing::attribute("to", int64_t{schema::TensorProto::DataType_FLOAT})}),
      node("Mul", {"p", "s"}, {"angles"}),
      node("MatMul", {"z", "angles"}, {"a"}),
      node("Cast", {"q"}, {"u"}, {testing::attribute("to", int64_t{schema::TensorProto::DataType_FLOAT})}),
      node("MatMul", {"a", "u"}, {"y"})};
  parts.initializers = {tensor("q", q), tensor("s", epl::Tensor::from_floats({}, {0.5F})),
                        tensor("positions", integers(DType::i32, {3, 2}, {0, 1, 2, 3, 4, 5}))};
  parts.inputs = {port("x", {"2", "3"})};
  parts.outputs = {port("y", {"2", "3"})};
  auto loaded = testing::load(testing::model(parts, {}, {.opset = 17}));
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ((*loaded)->initializers().size(), 3u);
  auto graph = (*loaded)->bind({});
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_TRUE(graph->leaves(ValueKind::parameter).empty());
}

}  // namespace
}  // namespace epl::onnx::quantized_test
