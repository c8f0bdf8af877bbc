// Files for training written again for inference: what changes, what is cut, and that nothing else does.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/onnx/make_model.h"
#include "tests/temporary_folder.h"

namespace epl::onnx::inference_test {
namespace {

namespace fs = std::filesystem;
using testing::Message;
using testing::node;
using testing::port;

Message ones(const char* name) { return testing::tensor(name, epl::Tensor::from_floats({2}, {1, 1})); }
Message truth(const char* name, bool value) {
  return testing::raw_tensor(name, schema::TensorProto::DataType_BOOL, {}, std::string(1, static_cast<char>(value)));
}
Message number(const char* name, float value) { return testing::tensor(name, epl::Tensor::from_floats({}, {value})); }
Message batch_norm(const testing::Names& outputs,
                   const std::vector<Message>& attributes = {testing::attribute("training_mode", int64_t{1})}) {
  return node("BatchNormalization", {"x", "scale", "bias", "mean", "var"}, outputs, attributes);
}
std::vector<Message> statistics() { return {ones("scale"), ones("bias"), ones("mean"), ones("var")}; }

class Inference : public ::testing::Test {
 protected:
  // The bytes of `message` written again; empty, and `status_` set, where that fails.
  std::string saved(const Message& message, const std::string& loss = {}, bool for_inference = true) {
    auto model = testing::load(message);
    status_ = model.status();
    if (!model.ok()) return {};
    status_ = (*model)->save((folder_ / "m.onnx").string(), {}, {.for_inference = for_inference, .loss_output = loss});
    if (!status_.ok()) return {};
    std::ifstream file(folder_ / "m.onnx", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // What is saved must be the file made of `wanted`, byte for byte.
  void expect(const testing::Parts& before, const testing::Parts& wanted, testing::Header header = {},
              const std::string& loss = {}) {
    EXPECT_EQ(saved(testing::model(before, {}, header), loss), testing::model(wanted, {}, header));
    EXPECT_TRUE(status_.ok()) << status_.to_string();
    EXPECT_EQ(saved(testing::model(before, {}, header), loss, false), testing::model(before, {}, header))
        << "for training nothing changes";
    auto after = testing::load(testing::model(wanted, {}, header));
    ASSERT_TRUE(after.ok()) << after.status().to_string();
    EXPECT_EQ((*after)->training_parts(), "");
  }
  std::string parts_of(const Message& message) {
    auto model = testing::load(message);
    return model.ok() ? (*model)->training_parts() : model.status().to_string();
  }
  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  Status status_;
};

const std::vector<Message> x_in = {port("x", {"n", "2"})}, y_out = {port("y", {"n", "2"})};

TEST_F(Inference, BatchNormLosesItsModeAndItsStatistics) {
  testing::Parts parts{.nodes = {batch_norm({"y", "next_mean", "next_var"})},
                       .initializers = statistics(),
                       .inputs = x_in,
                       .outputs = y_out};
  EXPECT_EQ(parts_of(testing::model(parts)), "1 BatchNormalization in training mode");
  testing::Parts wanted = parts;
  wanted.nodes = {batch_norm({"y"}, {testing::attribute("training_mode", int64_t{0})})};
  expect(parts, wanted);
}

// Before opset 14 five outputs say that it trains.
TEST_F(Inference, BatchNormOfOldOpsetsKeepsItsFirstOutputAlone) {
  testing::Parts parts{.nodes = {batch_norm({"y", "m", "v", "saved_m", "saved_v"}, {})},
                       .initializers = statistics(),
                       .inputs = x_in,
                       .outputs = y_out};
  EXPECT_EQ(parts_of(testing::model(parts, {}, {.opset = 13})), "1 BatchNormalization in training mode");
  testing::Parts wanted = parts;
  wanted.nodes = {batch_norm({"y"}, {})};
  expect(parts, wanted, {.opset = 13});
}

TEST_F(Inference, RunningStatisticsAmongTheOutputsGoWithWhatComputesThem) {
  testing::Parts parts{
      .nodes = {batch_norm({"y", "next_mean", "next_var"}), node("Identity", {"next_mean"}, {"mean_out"})},
      .initializers = statistics(),
      .inputs = x_in,
      .outputs = {port("y", {"n", "2"}), port("mean_out", {"2"}), port("next_var", {"2"})}};
  testing::Parts wanted = parts;
  wanted.nodes = {batch_norm({"y"}, {testing::attribute("training_mode", int64_t{0})})};
  wanted.outputs = y_out;
  expect(parts, wanted);
}

// One that a prediction reads is the one that went in.
TEST_F(Inference, AStatisticThatIsReadStays) {
  testing::Parts parts{.nodes = {batch_norm({"h", "next_mean", "next_var"}), node("Add", {"h", "next_mean"}, {"y"})},
                       .initializers = statistics(),
                       .inputs = x_in,
                       .outputs = y_out};
  const std::string made = saved(testing::model(parts));
  auto model = testing::load(made);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  auto graph = (*model)->bind({.symbols = {{"n", 2}}});
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ((*model)->op_counts().size(), 3u);  // the copy of the statistic besides
  // Those of the batch itself are gone in inference.
  testing::Parts old{
      .nodes = {batch_norm({"h", "m", "v", "batch_mean", "batch_var"}, {}), node("Add", {"h", "batch_mean"}, {"y"})},
      .initializers = statistics(),
      .inputs = x_in,
      .outputs = y_out};
  saved(testing::model(old, {}, {.opset = 13}));
  EXPECT_EQ(status_.code(), Code::unsupported);
  EXPECT_NE(status_.message().find("batch_mean"), std::string::npos) << status_.to_string();
  EXPECT_TRUE(fs::exists(folder_ / "m.onnx")) << "the file written before is still there";
}

TEST_F(Inference, DropoutLosesItsMode) {
  testing::Parts parts{.nodes = {node("Dropout", {"x", "ratio", "mode"}, {"y", "mask"})},
                       .initializers = {number("ratio", 0.25f), truth("mode", true)},
                       .inputs = x_in,
                       .outputs = y_out};
  EXPECT_EQ(parts_of(testing::model(parts)), "1 Dropout in training mode");
  testing::Parts wanted = parts;
  wanted.nodes = {node("Dropout", {"x", "ratio"}, {"y", "mask"})};
  wanted.initializers = {number("ratio", 0.25f)};
  expect(parts, wanted);
}

TEST_F(Inference, DropoutThatIsOffOrTheCallersIsLeft) {
  testing::Parts off{.nodes = {node("Dropout", {"x", "ratio", "mode"}, {"y"})},
                     .initializers = {number("ratio", 0.25f), truth("mode", false)},
                     .inputs = x_in,
                     .outputs = y_out};
  expect(off, off);
  testing::Parts callers{.nodes = {node("Dropout", {"x", "ratio", "mode"}, {"y"})},
                         .initializers = {number("ratio", 0.25f)},
                         .inputs = {port("x", {"n", "2"}), port("mode", {"1"}, schema::TensorProto::DataType_BOOL)},
                         .outputs = y_out};
  expect(callers, callers);
}

// The loss, the labels it compares with and the table it looks up go; what nothing read before stays.
TEST_F(Inference, TheLossGoesWithItsTarget) {
  const Message h = node("Mul", {"x", "w"}, {"y"});
  testing::Parts parts{.nodes = {h, node("Sub", {"y", "labels"}, {"d"}), node("Mul", {"d", "weights"}, {"e"}),
                                 node("ReduceMean", {"e"}, {"loss"}, {testing::attribute("keepdims", int64_t{0})}),
                                 node("Neg", {"x"}, {"nobody"})},
                       .initializers = {ones("w"), ones("weights"), ones("unused")},
                       .inputs = {port("x", {"n", "2"}), port("labels", {"n", "2"})},
                       .outputs = {port("loss", {}), port("y", {"n", "2"})}};
  testing::Parts wanted{.nodes = {h, node("Neg", {"x"}, {"nobody"})},
                        .initializers = {ones("w"), ones("unused")},
                        .inputs = x_in,
                        .outputs = y_out};
  expect(parts, wanted, {}, "loss");
  // Not named, or the only output: it stays.
  expect(parts, parts);
  parts.outputs = {port("loss", {})};
  expect(parts, parts, {}, "loss");
}

TEST_F(Inference, FunctionsAndBranchesAreEditedToo) {
  const Message body = testing::function(
      "Norm", {"x", "scale", "bias", "mean", "var"}, {"y", "m"},
      {node("Constant", {}, {"on"}, {testing::attribute("value", epl::Tensor::scalar(DType::boolean, 1))}),
       node("BatchNormalization", {"x", "scale", "bias", "mean", "var"}, {"h", "m", "v"},
            {testing::reference("training_mode", "train")}),
       node("Dropout", {"h", "", "on"}, {"y"})},
      {"train"});
  Message own_opset = body;
  {
    protozero::pbf_writer w(own_opset);
    protozero::pbf_writer id(w, schema::FunctionProto::opset_import);
    id.add_string(schema::OperatorSetIdProto::domain, "");
    id.add_int64(schema::OperatorSetIdProto::version, 20);
  }
  const Message branch = testing::graph(
      {.nodes = {node("Dropout", {"h", "ratio", "mode"}, {"dropped"})}, .outputs = {port("dropped", {"n", "2"})}});
  const Message other =
      testing::graph({.nodes = {node("Identity", {"h"}, {"same"})}, .outputs = {port("same", {"n", "2"})}});
  testing::Parts parts{
      .nodes = {node("Norm", {"x", "scale", "bias", "mean", "var"}, {"h", "m"},
                     {testing::attribute("train", int64_t{1})}, "own"),
                node("If", {"which"}, {"y"},
                     {testing::subgraph("then_branch", branch), testing::subgraph("else_branch", other)})},
      .initializers = {ones("scale"), ones("bias"), ones("mean"), ones("var"), number("ratio", 0.5f),
                       truth("mode", true), truth("which", true)},
      .inputs = x_in,
      .outputs = {port("y", {"n", "2"}), port("m", {"2"})}};
  const Message message = testing::model(parts, {own_opset});
  EXPECT_EQ(parts_of(message), "1 BatchNormalization and 2 Dropout in training mode");
  const std::string made = saved(message);
  ASSERT_TRUE(status_.ok()) << status_.to_string();
  EXPECT_EQ(parts_of(made), "");
  auto model = testing::load(made);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ((*model)->outputs().size(), 2u) << "a function's result stays, as the statistic that went in";
  for (auto bound : {(*model)->bind({.symbols = {{"n", 2}}, .mode = Binding::Mode::train}),
                     (*model)->bind({.symbols = {{"n", 2}}, .mode = Binding::Mode::evaluate})}) {
    ASSERT_TRUE(bound.ok()) << bound.status().to_string();
    EXPECT_TRUE(bound->updates.empty());
    EXPECT_TRUE(std::ranges::none_of(bound->nodes(),
                                     [](const epl::Node& n) { return n.name.find("Dropout") != std::string::npos; }));
  }
  EXPECT_EQ(saved(message, {}, false), message);
}

// Running statistics that a function takes are updated like those of the graph's own nodes. A file for inference
// without them would predict wrong.
TEST(Statistics, InConstantNodesAreUpdated) {
  auto constant = [](const char* name) {
    return node("Constant", {}, {name}, {testing::attribute("value", epl::Tensor::from_floats({2}, {1, 1}))});
  };
  auto graph = testing::import(testing::model({.nodes = {constant("mean"), constant("var"), batch_norm({"y"})},
                                               .initializers = {ones("scale"), ones("bias")},
                                               .inputs = x_in,
                                               .outputs = y_out}));
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(graph->updates.size(), 2u);
}

TEST(Statistics, ThatAFunctionTakesAreUpdated) {
  const Message norm = testing::function("Norm", {"m", "x", "v", "scale"}, {"y"},
                                         {node("BatchNormalization", {"x", "scale", "scale", "m", "v"}, {"y"},
                                               {testing::attribute("training_mode", int64_t{1})})});
  const Message twice = testing::function("Twice", {"x", "scale", "v", "m"}, {"y"},
                                          {node("Norm", {"m", "x", "v", "scale"}, {"y"}, {}, "own")});
  auto graph =
      testing::import(testing::model({.nodes = {node("Twice", {"x", "scale", "var", "mean"}, {"y"}, {}, "own")},
                                      .initializers = {ones("scale"), ones("mean"), ones("var")},
                                      .inputs = x_in,
                                      .outputs = y_out},
                                     {norm, twice}));
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(graph->updates.size(), 2u);
  EXPECT_EQ(graph->leaves(ValueKind::buffer).size(), 2u);
}

}  // namespace
}  // namespace epl::onnx::inference_test
