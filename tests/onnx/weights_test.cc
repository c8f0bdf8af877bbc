// Weights that stand in Constant nodes, or inside a branch: initialisers like any other, trained and written back at
// their place.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/onnx/make_model.h"
#include "tests/temporary_folder.h"

namespace epl::onnx::weights_test {
namespace {

namespace fs = std::filesystem;
using testing::Message;
using testing::node;
using testing::port;

Message constant(const std::string& name, const epl::Tensor& value) {
  return node("Constant", {}, {name}, {testing::attribute("value", value)});
}

const epl::Tensor square = epl::Tensor::from_floats({2, 2}, {1, 2, 3, 4});
const epl::Tensor vector = epl::Tensor::from_floats({2}, {5, 6});
const epl::Tensor other = epl::Tensor::from_floats({2, 2}, {-1, 0.5, 7, 8});

// y = (x w + b) scaled, then in each branch a product with a weight of its own; the branches use the same names.
Message model(bool taken) {
  auto branch = [&](const epl::Tensor& w) {
    return testing::graph(
        {.nodes = {constant("v", w), node("MatMul", {"h", "v"}, {"t"}), node("Mul", {"t", "stored"}, {"b"})},
         .initializers = {testing::tensor("stored", vector)},
         .outputs = {port("b", {"a"})}});
  };
  epl::Tensor yes(TensorType{DType::boolean, {}});
  yes.set_int(0, taken);
  return testing::model(
      {.nodes = {constant("fc.w_0", square), node("MatMul", {"x", "fc.w_0"}, {"m"}), constant("shift", vector),
                 node("Add", {"m", "shift"}, {"g"}), constant("scale", vector), node("Mul", {"g", "scale"}, {"h"}),
                 node("If", {"yes"}, {"y"},
                      {testing::subgraph("then_branch", branch(square)),
                       testing::subgraph("else_branch", branch(other))})},
       .initializers = {testing::tensor("yes", yes)},
       .inputs = {port("x", {"n", "2"})},
       .outputs = {port("y", {"n", "2"})}});
}

std::vector<std::string> names(const epl::Graph& graph) {
  std::vector<std::string> found;
  for (Value v : graph.leaves(ValueKind::parameter)) found.push_back(graph.value(v).name);
  std::ranges::sort(found);
  return found;
}

TEST(WeightsInNodes, AreParametersWhereTheyStandForWeights) {
  for (bool taken : {true, false}) {
    auto loaded = testing::load(model(taken));
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    std::vector<std::string> listed;
    for (const ModelInitializer& one : (*loaded)->initializers()) listed.push_back(one.name);
    EXPECT_EQ(listed, (std::vector<std::string>{"yes", "fc.w_0", "shift", "stored", "v", "node_y/else_branch/stored",
                                                "node_y/else_branch/v"}));
    auto graph = (*loaded)->bind({.symbols = {{"n", 3}}});
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    std::vector<std::string> wanted = {"fc.w_0", "shift", taken ? "stored" : "node_y/else_branch/stored",
                                       taken ? "v" : "node_y/else_branch/v"};
    std::ranges::sort(wanted);
    EXPECT_EQ(names(*graph), wanted);
    // What only scales is a constant, unless its name says otherwise.
    EXPECT_EQ(graph->find("scale"), Value());
  }
}

TEST(WeightsInNodes, AreWrittenBackAtTheirPosition) {
  const TemporaryFolder folder;
  auto loaded = testing::load(model(false));
  ASSERT_TRUE(loaded.ok());
  const epl::Tensor nine = epl::Tensor::from_floats({2, 2}, {9, 9, 9, 9}),
                    eight = epl::Tensor::from_floats({2}, {8, 8});
  for (bool for_inference : {false, true}) {
    const std::string path = folder / "out.onnx";
    const Status status = (*loaded)->save(path, {{"fc.w_0", other}, {"shift", eight}, {"node_y/else_branch/v", nine}},
                                          {.for_inference = for_inference});
    ASSERT_TRUE(status.ok()) << status.to_string();
    auto again = load_model(path);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    auto graph = (*again)->bind({.symbols = {{"n", 3}}});
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    auto data = [&](const char* name) { return graph->value(graph->find(name)).data; };
    EXPECT_TRUE(identical(data("fc.w_0"), other));
    EXPECT_TRUE(identical(data("shift"), eight));
    EXPECT_TRUE(identical(data("node_y/else_branch/v"), nine));
    // The branch that is not taken keeps its own, and so does every other byte.
    std::ifstream file(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}}, before = model(false);
    EXPECT_EQ(bytes.size(), before.size());
    size_t different = 0;
    for (size_t k = 0; k < std::min(bytes.size(), before.size()); ++k) different += bytes[k] != before[k];
    EXPECT_LE(different, 40u);  // two squares and a vector of floats
    EXPECT_GE(different, 10u);
  }
  EXPECT_EQ((*loaded)->save(folder / "out.onnx", {{"shift", square}}).code(), Code::invalid_argument);
  EXPECT_EQ((*loaded)->save(folder / "out.onnx", {{"scale", vector}}).code(), Code::not_found);
}

// Two sizes that nobody named need not be equal.
TEST(WeightsInNodes, AQuestionMarkIsNoSymbol) {
  auto loaded = testing::load(testing::model({.nodes = {node("MatMul", {"x", "z"}, {"y"})},
                                              .inputs = {port("x", {"?", "?"}), port("z", {"?", "n"})},
                                              .outputs = {port("y", {"?", "n"})}}));
  ASSERT_TRUE(loaded.ok());
  auto graph = (*loaded)->bind(
      {.symbols = {{"n", 2}}, .input_shapes = {{"x", {4, 3}}, {"z", {3, 2}}}, .batch_dims = {{"z", -1}}});
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
}

}  // namespace
}  // namespace epl::onnx::weights_test
