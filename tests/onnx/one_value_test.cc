// Norms in training over one value, whose variance is zero: told by their node, and no running variance goes to zero.
// PyTorch: "Expected more than 1 value per channel when training".
#include <gtest/gtest.h>

#include "core/ir/evaluate.h"
#include "tests/onnx/make_model.h"

namespace epl::onnx::one_value_test {
namespace {

using namespace testing;

epl::Tensor row(float a, float b) { return epl::Tensor::from_floats({2}, {a, b}); }

struct Told {
  epl::Graph graph;
  std::vector<std::string> notes;
};
Told bound(const std::string& op, const std::vector<std::string>& shape, const std::vector<Message>& attributes,
           Binding::Mode mode, int64_t samples) {
  const bool statistics = op == "BatchNormalization";
  Names operands = {"x", "s.weight", "s.bias"};
  if (statistics) operands.insert(operands.end(), {"mean", "variance"});
  auto made = load(model({.nodes = {node(op, operands, statistics ? Names{"y", "m", "v"} : Names{"y"}, attributes)},
                          .initializers = {tensor("s.weight", row(1, 2)), tensor("s.bias", row(0, 1)),
                                           tensor("mean", row(0, 0)), tensor("variance", row(1, 1))},
                          .inputs = {port("x", shape)},
                          .outputs = {port("y", shape)}}));
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  Told out;
  Binding binding{.symbols = {{"n", samples}}, .mode = mode, .notes = &out.notes};
  auto graph = (*made)->bind(binding);
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  if (graph.ok()) out.graph = *std::move(graph);
  return out;
}

TEST(OneValue, IsTold) {
  struct Case {
    std::string op;
    std::vector<std::string> shape;
    std::vector<Message> attributes;
    int64_t samples;
    bool one;
  };
  const std::vector<Message> trains = {attribute("training_mode", int64_t{1})},
                             groups = {attribute("num_groups", int64_t{2})};
  for (const Case& c : {Case{"BatchNormalization", {"n", "2"}, trains, 1, true},
                        Case{"BatchNormalization", {"n", "2"}, trains, 2, false},
                        Case{"BatchNormalization", {"n", "2", "1", "1"}, trains, 1, true},
                        Case{"BatchNormalization", {"n", "2", "1", "2"}, trains, 1, false},
                        Case{"BatchNormalization", {"n", "2"}, {}, 1, false},
                        Case{"InstanceNormalization", {"n", "2", "1"}, {}, 4, true},
                        Case{"InstanceNormalization", {"n", "2", "3"}, {}, 4, false},
                        Case{"GroupNormalization", {"n", "2", "1"}, groups, 4, true},
                        Case{"GroupNormalization", {"n", "2", "3"}, groups, 4, false}}) {
    SCOPED_TRACE(cat(c.op, " ", c.shape.size(), " ", c.samples));
    const Told told = bound(c.op, c.shape, c.attributes, Binding::Mode::train, c.samples);
    ASSERT_EQ(told.notes.size(), c.one ? 1u : 0u);
    if (c.one) {
      EXPECT_TRUE(told.notes[0].starts_with("node node_y: training normalises")) << told.notes[0];
    }
    EXPECT_TRUE(bound(c.op, c.shape, c.attributes, Binding::Mode::evaluate, c.samples).notes.empty());
  }
}

TEST(OneValue, LeavesTheRunningVarianceAlone) {
  for (int64_t samples : {1, 2}) {
    const Told told = bound("BatchNormalization", {"n", "2"}, {attribute("training_mode", int64_t{1})},
                            Binding::Mode::train, samples);
    epl::Tensor x({DType::f32, {samples, 2}});
    for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>(i * i));
    std::map<Value, epl::Tensor> leaves = {{told.graph.find("x"), x}};
    for (ValueKind kind : {ValueKind::parameter, ValueKind::buffer}) {
      for (Value v : told.graph.leaves(kind)) leaves[v] = told.graph.value(v).data;
    }
    auto values = evaluate_graph(told.graph, leaves);
    ASSERT_TRUE(values.ok()) << values.status().to_string();
    for (const auto& update : told.graph.updates) {
      if (told.graph.value(update.state).name != "variance") continue;
      const epl::Tensor next = (*values)[update.next.index];
      EXPECT_EQ(next.get(0) == 1 && next.get(1) == 1, samples == 1);
      EXPECT_GE(next.get(0), 0.9);
    }
  }
}

}  // namespace
}  // namespace epl::onnx::one_value_test
