// Train steps in mixed precision, by the meaning of their graphs: losses near those of PyTorch's autocast (see
// mixed_precision_reference.py), and which values have 16 bits.
#include "core/train/mixed_precision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/ir/evaluate.h"
#include "core/ir/op.h"
#include "core/train/precision.h"
#include "core/train/train_step.h"

namespace epl::mixed_precision_test {
namespace {

Tensor filled(DType type, Shape shape, double start, double factor) {
  Tensor out(TensorType{type, std::move(shape)});
  for (int64_t i = 0; i < out.elements(); ++i) out.set(i, factor * std::sin(0.7 * static_cast<double>(i) + start));
  return out;
}

// x[8,12] -> layer norm of gelu(x w1 + b1), times w2, plus b2.
Graph model() {
  Graph graph;
  Builder b(graph);
  int made = 0;
  const auto parameter = [&](const char* name, Shape shape, double factor) {
    Tensor data = filled(DType::f32, std::move(shape), made++, factor);
    return b.var(graph.add_leaf(ValueKind::parameter, name, data.type(), data));
  };
  const Var x = b.var(graph.add_input("x", {DType::f32, {8, 12}}, 0));
  const Var w1 = parameter("w1", {12, 24}, 0.4), b1 = parameter("b1", {24}, 0.4), scale = parameter("scale", {24}, 1),
            shift = parameter("shift", {24}, 0.4), w2 = parameter("w2", {24, 4}, 0.4), b2 = parameter("b2", {4}, 0.4);
  b.set_scope("h");
  const Var h = b.emit("linear", {x, w1, b1});
  b.set_scope("g");
  const Var g = b.emit("gelu", {h});
  b.set_scope("n");
  const Var n = b.emit_all("layer_norm", {g, scale, shift})[0];
  b.set_scope("y");
  const Var y = b.emit("linear", {n, w2, b2});
  EXPECT_TRUE(b.status().ok()) << b.status().to_string();
  graph.outputs = {{"y", y.value()}};
  return graph;
}

Graph in_mixed_precision(const Graph& graph, DType type) {
  auto made = with_mixed_precision(graph, type);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_TRUE(verify(*made).ok()) << verify(*made).to_string();
  return *std::move(made);
}

TrainStep step_of(const Graph& forward, bool scales_loss = false) {
  TrainOptions options;
  options.loss.name = "softmax_cross_entropy";
  options.optimizer_options = {{"lr", 0.2}};
  options.scales_loss = scales_loss;
  auto made = build_train_step(forward, options);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_TRUE(verify(made->graph).ok()) << verify(made->graph).to_string();
  return *std::move(made);
}

struct Learned {
  std::vector<double> losses;
  std::map<std::string, Tensor> weights;
};

Learned learn(const TrainStep& step, int steps, double loss_scale = 1) {
  Learned out;
  const Graph& graph = step.graph;
  std::map<Value, Tensor> leaves;
  const Value x = graph.find("x");
  leaves[x] = filled(graph.type(x).dtype, {8, 12}, 0.3, 1.5);
  Tensor target(TensorType{DType::i64, {8}});
  for (int64_t i = 0; i < 8; ++i) target.set_int(i, i * 3 % 4);
  leaves[graph.find("target")] = target;
  for (int s = 0; s < steps; ++s) {
    for (const HostScalar& scalar : step.scalars)
      leaves[scalar.value] =
          Tensor::scalar(graph.type(scalar.value).dtype, scalar.at({.step = s, .loss_scale = loss_scale}));
    auto values = evaluate_graph(graph, leaves);
    EXPECT_TRUE(values.ok()) << values.status().to_string();
    if (!values.ok()) return out;
    out.losses.push_back((*values)[graph.outputs[0].value.index].get(0));
    for (const Graph::Update& update : graph.updates) leaves[update.state] = (*values)[update.next.index];
  }
  for (const Value v : graph.leaves(ValueKind::parameter)) out.weights[graph.value(v).name] = leaves[v];
  return out;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

const std::vector<double> exact = {1.45522009, 1.33665236, 1.16970016, 1.10346017, 1.08106781, 1.06886608,
                                   1.06051075, 1.05408972, 1.04884668, 1.04441207, 1.04057279, 1.03719086};
const std::vector<double> autocast_bf16 = {1.45308208, 1.34260631, 1.17383587, 1.10400712, 1.08157969, 1.06916249,
                                           1.06108809, 1.05372071, 1.04825819, 1.04340601, 1.04131877, 1.03722095};
const std::vector<double> autocast_f16 = {1.45499182, 1.33637929, 1.16962087, 1.10369933, 1.08104825, 1.06881666,
                                          1.06053984, 1.05417681, 1.04894578, 1.04446518, 1.04063678, 1.03738689};

TEST(MixedPrecision, LearnsAsAutocastDoes) {
  auto wide = with_float64(model());
  ASSERT_TRUE(wide.ok());
  EXPECT_LT(largest_difference(learn(step_of(*wide), 12).losses, exact), 1e-6);
  struct Case {
    DType type;
    const std::vector<double>& autocast;
  };
  for (const auto& [type, autocast] : {Case{DType::bf16, autocast_bf16}, Case{DType::f16, autocast_f16}}) {
    SCOPED_TRACE(dtype_name(type));
    const std::vector<double> losses = learn(step_of(in_mixed_precision(model(), type)), 12).losses;
    const double theirs = largest_difference(autocast, exact);
    EXPECT_LT(largest_difference(losses, exact), 2 * theirs);
    EXPECT_LT(largest_difference(losses, autocast), 2 * theirs);
    EXPECT_GT(largest_difference(losses, exact), 1e-6) << "nothing has 16 bits";
  }
}

// A power of two only moves exponents.
TEST(MixedPrecision, ALossScaleOfAPowerOfTwoChangesNoBit) {
  const Graph narrow = in_mixed_precision(model(), DType::bf16);
  const Learned plain = learn(step_of(narrow), 3), scaled = learn(step_of(narrow, true), 3, 4096);
  EXPECT_EQ(scaled.losses, plain.losses);
  for (const auto& [name, weight] : plain.weights) EXPECT_TRUE(identical(scaled.weights.at(name), weight)) << name;
}

TEST(MixedPrecision, NarrowsTheOperandsOfProductsAndWhatMoves) {
  Graph graph;
  Builder b(graph);
  const Var x = b.var(graph.add_input("x", {DType::f32, {4, 6}}, 0)),
            w = b.var(graph.add_input("w", {DType::f32, {6, 8}}));
  b.set_scope("p");
  const Var p = b.matmul(x, w);
  b.set_scope("moved");
  const Var moved = b.transpose(b.reshape(p, {4, 2, 4}), {1, 0, 2});
  b.set_scope("both");
  const Var both = b.concat({moved, b.exp(moved)}, 0);
  b.set_scope("last");
  const Var last = b.reshape(b.matmul(moved, moved, false, true), {4, 8});
  graph.outputs = {{"both", both.value()}, {"last", last.value()}};
  ASSERT_TRUE(b.status().ok()) << b.status().to_string();
  const Graph made = in_mixed_precision(graph, DType::f16);
  const auto type = [&](const char* name) { return made.type(made.find(name)).dtype; };
  EXPECT_EQ(type("p"), DType::f32) << "the sum";
  EXPECT_EQ(type("moved"), DType::f16);
  EXPECT_EQ(type("both"), DType::f32) << "beside a value that stays in float32";
  for (const Node& node : made.nodes()) {
    if (node.op->narrow_inputs.empty()) continue;
    EXPECT_TRUE(node.attributes.flag("wide")) << node.name;
    for (const int i : node.op->narrow_inputs)
      EXPECT_EQ(made.type(node.inputs[static_cast<size_t>(i)]).dtype, DType::f16) << node.name;
  }
  for (const Graph::Output& output : made.outputs) EXPECT_EQ(made.type(output.value).dtype, DType::f32);
  // What leaves the graph is not rounded on its way.
  const Node& leaves = made.node(made.value(made.outputs[1].value).producer);
  EXPECT_EQ(made.type(leaves.inputs[0]).dtype, DType::f32);
}

// Every op that may have narrow operands has sums of float32 then, and says so to its gradients.
TEST(MixedPrecision, OpsWithNarrowOperandsHaveWideSums) {
  int found = 0;
  for (const OpDef* op : op_table().all()) {
    if (op->narrow_inputs.empty()) continue;
    ++found;
    EXPECT_TRUE(std::ranges::any_of(op->attributes, [](const Option& option) { return option.name == "wide"; }))
        << op->name;
    EXPECT_EQ(op->output_count(), 1) << op->name;
  }
  EXPECT_GE(found, 4);
}

// Gradients of weights are float32 sums of products of 16 bits, and no weight is kept in two types.
TEST(MixedPrecision, AStepAddsInFloat32AndCastsWeightsWhereTheyAreUsed) {
  const TrainStep step = step_of(in_mixed_precision(model(), DType::bf16), true);
  const Graph& graph = step.graph;
  for (const ValueKind kind : {ValueKind::parameter, ValueKind::state}) {
    for (const Value v : graph.leaves(kind)) EXPECT_EQ(graph.type(v).dtype, DType::f32) << graph.value(v).name;
  }
  int weights = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op->name == "linear_grad_weight") {
      ++weights;
      EXPECT_EQ(graph.type(node.inputs[0]).dtype, DType::bf16) << node.name;
      EXPECT_EQ(graph.type(node.outputs[0]).dtype, DType::f32) << node.name;
    }
    EXPECT_TRUE(node.op->name != "sum" || graph.type(node.inputs[0]).dtype == DType::f32) << node.name;
    for (const Value v : node.inputs) {
      if (!v || node.phase != Phase::backward || graph.value(v).kind != ValueKind::result) continue;
      const Node& made_by = graph.node(graph.value(v).producer);
      const bool of_weight =
          made_by.op->moves == Moves::converted && graph.value(made_by.inputs[0]).kind == ValueKind::parameter;
      EXPECT_TRUE(!of_weight || made_by.phase == Phase::backward) << node.name;
    }
  }
  EXPECT_EQ(weights, 2);
}

}  // namespace
}  // namespace epl::mixed_precision_test
