// Numbers of windows and slices that a file may give but that no arithmetic should be done with: bounded, or the error
// names the node.
#include <gtest/gtest.h>

#include "core/ir/evaluate.h"
#include "tests/onnx/make_model.h"

namespace epl::onnx::bounds_test {
namespace {

using namespace testing;

Message one_node(const Message& made, const std::vector<std::string>& x,
                 const std::vector<Message>& initializers = {}) {
  return model({.nodes = {made}, .initializers = initializers, .inputs = {port("x", x)}, .outputs = {port("y", {})}});
}

std::string refusal(const Message& bytes) {
  auto graph = import(bytes);
  EXPECT_FALSE(graph.ok());
  if (graph.ok()) return "";
  EXPECT_NE(graph.status().where().find("node_y"), std::string::npos) << graph.status().to_string();
  return graph.status().message();
}

TEST(Bounds, OfWindows) {
  const Ints kernel = {3};
  for (int64_t far : {int64_t{1} << 62, INT64_MAX, INT64_MIN}) {
    SCOPED_TRACE(far);
    for (const char* name : {"dilations", "strides", "pads"}) {
      const Message number = attribute(name, std::string(name) == "pads" ? Ints{far, 0} : Ints{far});
      for (const char* op : {"MaxPool", "AveragePool"}) {
        if (std::string(op) == "AveragePool" && std::string(name) == "dilations") continue;
        EXPECT_FALSE(
            refusal(one_node(node(op, {"x"}, {"y"}, {attribute("kernel_shape", kernel), number}), {"1", "1", "8"}))
                .empty())
            << op << " " << name;
      }
      for (const char* op : {"Conv", "ConvTranspose"}) {
        const Message w = tensor("w", epl::Tensor({DType::f32, {1, 1, 3}}));
        EXPECT_FALSE(refusal(one_node(node(op, {"x", "w"}, {"y"}, {number}), {"1", "1", "8"}, {w})).empty())
            << op << " " << name;
      }
    }
    EXPECT_FALSE(
        refusal(one_node(node("MaxPool", {"x"}, {"y"}, {attribute("kernel_shape", Ints{far})}), {"1", "1", "8"}))
            .empty());
  }
}

TEST(Bounds, OfTransforms) {
  for (int64_t far : {int64_t{0}, int64_t{-5}, int64_t{1} << 40, INT64_MAX, INT64_MIN}) {
    epl::Tensor length(TensorType{DType::i64, {}});
    length.set_int(0, far);
    EXPECT_FALSE(refusal(one_node(node("DFT", {"x", "n"}, {"y"}), {"2", "8", "1"}, {tensor("n", length)})).empty())
        << far;
    if (far > 8 || far < 1) {
      EXPECT_FALSE(refusal(one_node(node("STFT", {"x", "one", "", "n"}, {"y"}), {"2", "8", "1"},
                                    {tensor("n", length), tensor("one", epl::Tensor::from_ints({1}))}))
                       .empty())
          << far;
    }
  }
  // A short file that asks for many large matrices.
  Parts parts;
  const int64_t length = 2048;
  for (int k = 0; k < 40; ++k) parts.nodes.push_back(node("DFT", {k == 0 ? "x" : cat("h", k)}, {cat("h", k + 1)}));
  parts.inputs = {port("x", {"1", cat(length), "2"})};
  parts.outputs = {port("h40", {})};
  auto graph = import(model(parts));
  ASSERT_FALSE(graph.ok());
  EXPECT_NE(graph.status().message().find("take more than"), std::string::npos) << graph.status().to_string();
}

TEST(Bounds, OfScalesAndZeroPoints) {
  epl::Tensor zero(TensorType{DType::u8, {3}});
  const Message scale = tensor("s", epl::Tensor::from_floats({3}, {1, 2, 3})), zeros = tensor("z", zero),
                none = tensor("s", epl::Tensor(TensorType{DType::f32, {0}}));
  for (int64_t axis : {int64_t{0}, int64_t{2}, INT64_MAX, INT64_MIN}) {
    EXPECT_FALSE(refusal(one_node(node("QuantizeLinear", {"x", "s", "z"}, {"y"}, {attribute("axis", axis)}), {"2", "3"},
                                  {scale, zeros}))
                     .empty())
        << axis;
  }
  EXPECT_EQ(refusal(one_node(node("QuantizeLinear", {"x", "s"}, {"y"}), {"2", "3"}, {none})),
            "importing QuantizeLinear: no scale");
}

TEST(Bounds, OfStatesAtTheStart) {
  const std::vector<Message> weights = {tensor("w", epl::Tensor({DType::f32, {1, 12, 3}})),
                                        tensor("r", epl::Tensor({DType::f32, {1, 12, 4}})),
                                        tensor("h", epl::Tensor({DType::f32, {1, 1, 4}}))};
  const std::string why = refusal(one_node(node("GRU", {"x", "w", "r", "", "", "h"}, {"y"}), {"5", "2", "3"}, weights));
  EXPECT_NE(why.find("the sequence has 2 samples, which take [1,2,4]"), std::string::npos) << why;
}

TEST(Bounds, AStepBeyondTheDimensionTakesOneElement) {
  for (int64_t step : {INT64_MAX, int64_t{1} << 40, int64_t{5}}) {
    for (bool back : {false, true}) {
      const auto ints = [](const char* name, int64_t value) { return tensor(name, epl::Tensor::from_ints({value})); };
      const int64_t start = back ? 2 : 1;
      auto graph = import(one_node(node("Slice", {"x", "from", "to", "axes", "step"}, {"y"}), {"4"},
                                   {ints("from", start), ints("to", back ? INT64_MIN : INT64_MAX), ints("axes", 0),
                                    ints("step", back ? -step : step)}));
      ASSERT_TRUE(graph.ok()) << graph.status().to_string();
      auto values = evaluate_graph(*graph, {{graph->find("x"), epl::Tensor::from_floats({4}, {10, 11, 12, 13})}});
      ASSERT_TRUE(values.ok()) << values.status().to_string();
      const epl::Tensor& y = (*values)[graph->outputs[0].value.index];
      ASSERT_EQ(y.elements(), 1) << step;
      EXPECT_EQ(y.get(0), 10 + static_cast<double>(start));
    }
  }
}

}  // namespace
}  // namespace epl::onnx::bounds_test
