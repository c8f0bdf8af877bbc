// Fused graphs compute the bits of the graphs that they come from.
#include "core/program/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "core/ir/evaluate.h"
#include "core/ir/op.h"
#include "core/ir/rewriter.h"

namespace epl::fusion_test {
namespace {

int count_op(const Graph& graph, std::string_view op) {
  return static_cast<int>(std::ranges::count_if(graph.nodes(), [&](const Node& node) { return node.op->name == op; }));
}
int count_elementwise(const Graph& graph) {
  return static_cast<int>(
      std::ranges::count_if(graph.nodes(), [](const Node& node) { return node.op->elementwise(); }));
}

std::map<Value, Tensor> random_leaves(const Graph& graph, std::mt19937& random) {
  std::map<Value, Tensor> leaves;
  std::normal_distribution<double> normal;
  for (Value input : graph.leaves(ValueKind::input)) {
    Tensor data(graph.type(input));
    for (int64_t i = 0; i < data.elements(); ++i) data.set(i, is_float(data.dtype()) ? normal(random) : random() % 7);
    leaves[input] = data;
  }
  return leaves;
}

// Both graphs have the same inputs by name; compares every output and update.
void expect_same_bits(const Graph& graph, const Graph& fused, std::mt19937& random) {
  ASSERT_TRUE(verify(fused).ok()) << verify(fused).to_string() << print_graph(fused);
  const std::map<Value, Tensor> leaves = random_leaves(graph, random);
  std::map<Value, Tensor> fused_leaves;
  for (const auto& [value, data] : leaves) fused_leaves[fused.find(graph.value(value).name)] = data;
  auto expected = evaluate_graph(graph, leaves), got = evaluate_graph(fused, fused_leaves);
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  ASSERT_EQ(graph.outputs.size(), fused.outputs.size());
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    EXPECT_TRUE(identical((*expected)[graph.outputs[i].value.index], (*got)[fused.outputs[i].value.index]))
        << graph.outputs[i].name << "\n"
        << print_graph(graph) << print_graph(fused);
  }
}

// A graph of float and truth values of shapes that broadcast, with products in between as walls.
Graph random_graph(std::mt19937& random, DType type, int nodes) {
  Graph graph;
  Builder b(graph);
  const std::vector<Shape> shapes = {{4, 6}, {6}, {4, 1}, {}, {2, 4, 6}};
  std::vector<Var> reals, truths;
  const auto pick = [&](const std::vector<Var>& from) { return from[random() % from.size()]; };
  for (int i = 0; i < 5; ++i) reals.push_back(b.var(graph.add_input(cat("x", i), {type, shapes[i]})));
  Var w = b.var(graph.add_input("w", {type, {6, 6}}));
  Var ids = b.var(graph.add_input("ids", {DType::i64, {4, 6}}));
  truths.push_back(pick(reals) > 0.0);
  for (int i = 0; i < nodes; ++i) {
    if (i == nodes / 2) b.set_phase(Phase::backward);
    Var x = pick(reals), y = pick(reals), made;
    switch (random() % 14) {
      case 0:
        made = x + y;
        break;
      case 1:
        made = x * y;
        break;
      case 2:
        made = x - y;
        break;
      case 3:
        made = b.tanh(x);
        break;
      case 4:
        made = b.exp(b.minimum(x, b.like(x, 2)));
        break;
      case 5:
        truths.push_back(b.emit("logical_or", {pick(truths), x < y}));
        continue;
      case 6:
        made = b.select(pick(truths), x, y);
        break;
      case 7:
        made = b.cast(pick(truths), type) * x;
        break;
      case 8:
        made = x / (y * y + 0.5);
        break;
      case 9:
        made = b.emit("identity", {x});
        break;
      case 10:
        made = x.ndim() ? b.sum(x, {-1}) * 0.125 : x;
        break;
      case 11:
        made = x.dim(-1) == 6 && x.ndim() > 1 ? b.matmul(x, w) : x * 3;
        break;
      case 12:
        made = b.broadcast_to(x.ndim() < 2 ? x : x * 2, x.ndim() < 2 ? Shape{4, 6} : x.shape());
        break;
      default:
        made = b.cast(b.emit("add", {ids, ids}), type);
        break;
    }
    reals.push_back(made);
  }
  EXPECT_TRUE(b.status().ok()) << b.status().to_string();
  for (int i = 0; i < 6; ++i) graph.outputs.push_back({cat("y", i), pick(reals).value()});
  graph.outputs.push_back({"last", reals.back().value()});
  graph.outputs.push_back({"truth", truths.back().value()});
  return without_dead_nodes(graph);
}

class RandomGraphs : public testing::TestWithParam<int> {};

TEST_P(RandomGraphs, KeepTheirBits) {
  std::mt19937 random(GetParam());
  for (int round = 0; round < 12; ++round) {
    const Graph graph = random_graph(random, round % 3 ? DType::f32 : DType::f64, 10 + 10 * round);
    const Graph fused = fuse_elementwise(graph);
    expect_same_bits(graph, fused, random);
    EXPECT_EQ(count_elementwise(fused), count_op(fused, "fused"));
    EXPECT_LE(fused.node_count(), graph.node_count());
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphs, testing::Range(0, 8));

TEST(Fusion, JoinsAChainAndInlinesNumbers) {
  Graph graph;
  Builder b(graph);
  Var x = b.var(graph.add_input("x", {DType::f32, {3, 5}})), y = b.var(graph.add_input("y", {DType::f32, {5}}));
  graph.outputs = {{"z", (b.tanh(x * y + 1.0) * 0.5).value()}};
  const Graph fused = fuse_elementwise(graph);
  ASSERT_EQ(fused.node_count(), 1);
  EXPECT_EQ(fused.node(NodeId{0}).inputs.size(), 2u);
  EXPECT_TRUE(fused.leaves(ValueKind::constant).empty());
  EXPECT_EQ(fused.node(NodeId{0}).name, graph.nodes().back().name);
}

TEST(Fusion, KeepsAResultThatOthersUse) {
  Graph graph;
  Builder b(graph);
  Var x = b.var(graph.add_input("x", {DType::f32, {4, 4}}));
  Var shared = x * 2.0;
  graph.outputs = {{"z", (b.matmul(shared, x) + b.exp(shared)).value()}};
  const Graph fused = fuse_elementwise(graph);
  // shared and exp are one node of two results; the sum comes after the product.
  EXPECT_EQ(count_op(fused, "fused"), 2);
  EXPECT_EQ(fused.node(NodeId{0}).outputs.size(), 2u);
  std::mt19937 random(1);
  expect_same_bits(graph, fused, random);
}

TEST(Fusion, NeverClosesACycle) {
  Graph graph;
  Builder b(graph);
  Var x = b.var(graph.add_input("x", {DType::f32, {4, 4}}));
  Var first = b.exp(x);
  graph.outputs = {{"z", (b.matmul(first, x) * first).value()}};  // the product lies between
  const Graph fused = fuse_elementwise(graph);
  EXPECT_EQ(count_op(fused, "fused"), 2);
  std::mt19937 random(2);
  expect_same_bits(graph, fused, random);
}

TEST(Fusion, ReadsBroadcastsAtTheirSource) {
  Graph graph;
  Builder b(graph);
  Var x = b.var(graph.add_input("x", {DType::f32, {3, 4}})), s = b.var(graph.add_input("s", {DType::f32, {3, 1}}));
  graph.outputs = {{"z", (b.broadcast_to(s, {3, 4}) * x).value()}};
  EXPECT_EQ(fuse_elementwise(graph).node_count(), 1);
  // Nothing else has the shape here: the broadcast stays.
  Graph alone;
  Builder c(alone);
  Var t = c.var(alone.add_input("t", {DType::f32, {3, 1}}));
  alone.outputs = {{"z", c.exp(c.broadcast_to(t, {3, 4})).value()}};
  EXPECT_EQ(fuse_elementwise(alone).node_count(), 2);
  std::mt19937 random(3);
  expect_same_bits(alone, fuse_elementwise(alone), random);
}

TEST(Fusion, KeepsPhasesRegionsAndIntegersApart) {
  Graph graph;
  Builder b(graph);
  Var x = b.var(graph.add_input("x", {DType::f32, {4}})), i = b.var(graph.add_input("i", {DType::i64, {4}}));
  Var forward = x * 2.0;
  Var whole = b.emit("add", {b.emit("mul", {i, i}), i});
  b.set_phase(Phase::backward);
  Var backward = forward * 3.0;
  Var other = backward * 5.0;
  graph.node(graph.value(other.value()).producer).region = 1;
  graph.outputs = {{"whole", whole.value()}, {"other", other.value()}};
  const Graph fused = fuse_elementwise(graph);
  EXPECT_EQ(fused.node_count(), 5);
  EXPECT_EQ(fused.nodes().back().region, 1);
  std::mt19937 random(4);
  expect_same_bits(graph, fused, random);
}

TEST(Fusion, BoundsTheSizeOfARegion) {
  Graph graph;
  Builder b(graph);
  std::vector<Var> inputs;
  for (int i = 0; i < 60; ++i) inputs.push_back(b.var(graph.add_input(cat("x", i), {DType::f32, {4}})));
  Var sum = inputs[0];
  for (int i = 1; i < 60; ++i) sum = sum + inputs[i];
  for (int i = 0; i < 100; ++i) sum = sum * 1.01 + 0.1;
  graph.outputs = {{"sum", sum.value()}};
  const Graph fused = fuse_elementwise(graph);
  for (const Node& node : fused.nodes()) EXPECT_LE(node.inputs.size(), 24u);
  EXPECT_GE(fused.node_count(), 5);
  EXPECT_LE(fused.node_count(), 12);
  std::mt19937 random(5);
  expect_same_bits(graph, fused, random);
}

// Which types regions are made of is what the kernels take; a result inside is rounded as the separate node rounds it.
TEST(Fusion, TypesAreThoseOfTheKernels) {
  for (DType type : {DType::f16, DType::bf16, DType::f64}) {
    SCOPED_TRACE(dtype_name(type));
    Graph graph;
    Builder b(graph);
    Var x = b.var(graph.add_input("x", {type, {37}})), y = b.var(graph.add_input("y", {type, {37}}));
    graph.outputs = {{"z", (x * y + x).value()}};
    const Graph fused = fuse_elementwise(graph);
    EXPECT_EQ(fused.node_count(), 1) << print_graph(fused);
    std::mt19937 random(1);
    expect_same_bits(graph, fused, random);
    const KernelTable none;
    EXPECT_EQ(fuse_elementwise(graph, &none).node_count(), 2);
  }
}

// Batch normalization: the spread of each channel is summed while the distances from the mean are computed.
TEST(Fusion, SumsAResultInItsRegion) {
  Graph graph;
  Builder b(graph);
  Var x = b.var(graph.add_input("x", {DType::f32, {4, 3, 5, 5}}));
  Var mean = b.var(graph.add_input("mean", {DType::f32, {1, 3, 1, 1}}));
  Var distance = x - mean;
  Var spread = b.sum(distance * distance, {0, 2, 3}, true) * 0.01;
  graph.outputs = {{"y", (distance / (spread + 0.5)).value()}};
  const Graph fused = fuse_elementwise(graph);
  EXPECT_EQ(count_op(fused, "fused_sum"), 1) << print_graph(fused);
  EXPECT_EQ(count_op(fused, "sum"), 0);
  EXPECT_EQ(fused.node_count(), 3) << print_graph(fused);
  std::mt19937 random(6);
  expect_same_bits(graph, fused, random);
}

// Its gradient: two sums of the same axes are one pass, and a sum that nothing but the region's own results needs hides
// what it sums.
TEST(Fusion, SumsOfTheSameAxesAreOnePass) {
  Graph graph;
  Builder b(graph);
  Var x = b.var(graph.add_input("x", {DType::f32, {4, 3, 5}})),
      dy = b.var(graph.add_input("dy", {DType::f32, {4, 3, 5}}));
  Var gated = b.select(x > 0.0, dy, b.like(dy, 0.0));
  graph.outputs = {{"bias", b.sum(gated, {0, 2}).value()},
                   {"scale", b.sum(gated * x, {0, 2}).value()},
                   {"other", b.sum(gated + x, {1}).value()},
                   {"dx", gated.value()}};
  const Graph fused = fuse_elementwise(graph);
  EXPECT_EQ(count_op(fused, "fused_sum"), 1) << print_graph(fused);
  EXPECT_EQ(count_op(fused, "sum"), 1) << print_graph(fused);
  const Node& region = *std::ranges::find_if(fused.nodes(), [](const Node& n) { return n.op->name == "fused_sum"; });
  EXPECT_EQ(region.attributes.integer("sums"), 2);
  EXPECT_EQ(region.outputs.size(), 4u);  // both sums, and what others read: gated, and what is summed otherwise
  std::mt19937 random(7);
  expect_same_bits(graph, fused, random);
}

// A sum that leads back into its region stays behind it: a region ends in its sums.
TEST(Fusion, ASumNeverClosesACycle) {
  Graph graph;
  Builder b(graph);
  Var x = b.var(graph.add_input("x", {DType::f32, {4, 6}}));
  Var first = b.exp(x);
  Var weight = b.sum(first, {-1}, true);
  Var second = b.sum(first / weight, {-1}, true);  // a region of its own
  graph.outputs = {{"z", (first * second).value()}};
  const Graph fused = fuse_elementwise(graph);
  EXPECT_EQ(count_op(fused, "fused_sum"), 2) << print_graph(fused);
  std::mt19937 random(8);
  expect_same_bits(graph, fused, random);
}

TEST(Fusion, ASumOfAnInputOrAProductStaysAlone) {
  Graph graph;
  Builder b(graph);
  Var x = b.var(graph.add_input("x", {DType::f32, {4, 4}}));
  graph.outputs = {{"a", b.sum(x, {0}).value()}, {"b", b.sum(b.matmul(x, x), {0}).value()}};
  const Graph fused = fuse_elementwise(graph);
  EXPECT_EQ(count_op(fused, "sum"), 2);
  // Without a row for a region with sums, a sum is a pass of its own.
  Graph joins;
  Builder c(joins);
  Var y = c.var(joins.add_input("y", {DType::f32, {4, 4}}));
  joins.outputs = {{"a", c.sum(c.exp(y), {0}).value()}};
  EXPECT_EQ(count_op(fuse_elementwise(joins), "fused_sum"), 1);
  const KernelTable none;
  EXPECT_EQ(count_op(fuse_elementwise(joins, &none), "fused_sum"), 0);
}

}  // namespace
}  // namespace epl::fusion_test
