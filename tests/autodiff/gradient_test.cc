// The reverse pass over graphs: order of sums, paths that are cut or blocked, bodies, repeated operands.
#include "core/autodiff/gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/ir/evaluate.h"

namespace epl::gradient_test {
namespace {

class GradientTest : public testing::Test {
 protected:
  Graph graph;
  Builder b{graph};

  Var leaf(const char* name, Shape shape, DType type = DType::f64) {
    Tensor data({type, std::move(shape)});
    for (int64_t i = 0; i < data.elements(); ++i) data.set(i, 0.25 * static_cast<double>(i + 1));
    return b.var(graph.add_leaf(ValueKind::parameter, name, data.type(), data));
  }
  Var node(const char* name, std::string_view op, const std::vector<Var>& inputs, Attributes attributes = {}) {
    b.set_scope(name);
    return b.emit(op, inputs, std::move(attributes));
  }
  Var total(const Var& x) {
    Ints axes;
    for (int d = 0; d < x.ndim(); ++d) axes.push_back(d);
    b.set_scope("loss");
    return axes.empty() ? x : b.sum(x, axes, false);
  }
  Result<Gradients> gradients(const Var& loss, const std::vector<Var>& wanted) {
    EXPECT_TRUE(b.status().ok()) << b.status().to_string();
    std::vector<Value> values;
    for (const Var& v : wanted) values.push_back(v.value());
    return add_gradients(graph, loss.value(), values);
  }
  double value(Value v, int64_t i = 0) {
    auto all = evaluate_graph(graph, {});
    EXPECT_TRUE(all.ok()) << all.status().to_string();
    return (*all)[v.index].get(i);
  }
};

TEST_F(GradientTest, SeveralUsesAreSummedInTheOrderOfTheNodes) {
  const Var x = leaf("x", {3});
  const Var first = node("first", "mul", {x, x});
  const Var second = node("second", "mul", {first, x});
  const Var third = node("third", "exp", {x});
  auto g = gradients(total(first + second + third), {x});
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  // 2x + 3x^2 + e^x at 0.25
  EXPECT_NEAR(value(g->values[0]), 0.5 + 3 * 0.0625 + 1.2840254166877414, 1e-12);
  // The chain of additions begins with the first use and ends with the last.
  const Node& last = graph.node(graph.value(g->values[0]).producer);
  ASSERT_EQ(last.op->name, "add");
  EXPECT_EQ(graph.node(graph.value(last.inputs[1]).producer).name.substr(0, 5), "third");
  EXPECT_EQ(last.phase, Phase::backward);
  EXPECT_TRUE(verify(graph).ok()) << verify(graph).to_string();
}

TEST_F(GradientTest, SlicesThatFillADimensionJoin) {
  const Var x = leaf("x", {2, 6});
  const Var right = node("right", "slice", {x}, {{"axes", Ints{1}}, {"starts", Ints{4}}, {"ends", Ints{6}}});
  const Var left = node("left", "slice", {x}, {{"axes", Ints{1}}, {"starts", Ints{0}}, {"ends", Ints{1}}});
  const Var middle = node("middle", "slice", {x}, {{"axes", Ints{1}}, {"starts", Ints{1}}, {"ends", Ints{4}}});
  auto g = gradients(total(right * right) + total(left) + total(middle * b.like(middle, 3)), {x});
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  EXPECT_EQ(graph.node(graph.value(g->values[0]).producer).op->name, "concat");
  const double expected[] = {1, 3, 3, 3, 2 * 1.25, 2 * 1.5, 1, 3, 3, 3, 2 * 2.75, 2 * 3.0};
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(value(g->values[0], i), expected[i]) << i;
}

TEST_F(GradientTest, OtherSlicesAreSummed) {
  const struct {
    const char* what;
    Ints starts, ends, steps, axes;
  } cases[] = {{"a gap", {0, 3}, {2, 6}, {1, 1}, {1, 1}},
               {"an overlap", {0, 3}, {4, 6}, {1, 1}, {1, 1}},
               {"a rest at the end", {0, 2}, {2, 5}, {1, 1}, {1, 1}},
               {"two dimensions", {0, 0}, {6, 6}, {1, 1}, {0, 1}},
               {"every second", {0, 1}, {6, 6}, {2, 2}, {1, 1}}};
  for (const auto& c : cases) {
    graph = Graph();
    const Var x = leaf("x", {6, 6});
    std::vector<double> expected(36, 0.0);
    Var loss;
    for (size_t i = 0; i < 2; ++i) {
      const Var part = b.slice(x, {c.axes[i]}, {c.starts[i]}, {c.ends[i]}, {c.steps[i]});
      loss = loss ? loss + total(part) : total(part);
      for (int64_t e = 0; e < 36; ++e) {
        const int64_t at = c.axes[i] == 0 ? e / 6 : e % 6;
        if (at >= c.starts[i] && at < c.ends[i] && (at - c.starts[i]) % c.steps[i] == 0) expected[e] += 1;
      }
    }
    auto g = gradients(loss, {x});
    ASSERT_TRUE(g.ok()) << c.what << ": " << g.status().to_string();
    EXPECT_EQ(graph.node(graph.value(g->values[0]).producer).op->name, "add") << c.what;
    for (int64_t e = 0; e < 36; ++e) EXPECT_EQ(value(g->values[0], e), expected[e]) << c.what << ", element " << e;
  }
}

TEST_F(GradientTest, TheSameGraphTwiceGivesTheSameText) {
  const auto text = [] {
    Graph graph;
    Builder b(graph);
    const Var x = b.var(graph.add_leaf(ValueKind::parameter, "x", {DType::f32, {4, 3}}));
    const Var w = b.var(graph.add_leaf(ValueKind::parameter, "w", {DType::f32, {3, 3}}));
    b.set_scope("h");
    const Var h = b.tanh(b.matmul(b.matmul(x, w), w));
    const Var loss = b.sum(h, {0, 1}, false);
    EXPECT_TRUE(add_gradients(graph, loss.value(), {x.value(), w.value()}).ok());
    return print_graph(graph);
  };
  EXPECT_EQ(text(), text());
}

TEST_F(GradientTest, BroadcastOperandsGetGradientsOfTheirOwnShape) {
  const Var x = leaf("x", {4, 3}), row = leaf("row", {3}), scalar = leaf("scalar", {});
  auto g = gradients(total(x * row * scalar), {x, row, scalar});
  ASSERT_TRUE(g.ok());
  EXPECT_EQ(graph.type(g->values[1]).text(), "f64[3]");
  EXPECT_EQ(graph.type(g->values[2]).text(), "f64[]");
}

// Whatever it is called, and where it has no gradient but that of its body.
TEST_F(GradientTest, NodesOfTheBackwardPassBelongToTheirForwardNode) {
  const Var x = leaf("x", {2, 3});
  const Var first = node("net.gradient_net.first", "exp", {x});
  const Var second = node("second.gradient", "softplus", {first});
  const Var third = node("third", "mul", {second, second});
  auto g = gradients(total(third), {x});
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  std::set<std::string> origins, names;
  for (const Node& made : graph.nodes()) {
    EXPECT_TRUE(names.insert(made.name).second) << made.name;
    if (made.phase == Phase::backward) {
      origins.insert(made.origin);
    } else {
      EXPECT_EQ(made.origin, "");
    }
  }
  EXPECT_EQ(origins, (std::set<std::string>{"loss", "third", "second.gradient", "net.gradient_net.first"}));
  const std::string text = print_graph(graph);
  auto parsed = parse_graph(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(print_graph(*parsed), text);
}

TEST_F(GradientTest, ACutPathIsReportedAndCostsNothing) {
  const Var x = leaf("x", {3}), y = leaf("y", {3}), z = leaf("z", {3});
  const Var stopped = node("stopped", "exp", {node("stop", "stop_gradient", {x})});
  const Var rounded = node("rounded", "floor", {y});
  auto g = gradients(total(stopped + rounded + z), {x, y, z});
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  EXPECT_FALSE(g->values[0]);
  EXPECT_NE(g->reasons[0].find("node stop (stop_gradient): stops gradients on purpose"), std::string::npos)
      << g->reasons[0];
  EXPECT_FALSE(g->values[1]);
  EXPECT_NE(g->reasons[1].find("node rounded (floor): piecewise constant"), std::string::npos) << g->reasons[1];
  EXPECT_TRUE(g->values[2]);
  // Nothing is computed for the side that is cut.
  for (const Node& n : graph.nodes()) EXPECT_EQ(n.name.find("stopped.gradient"), std::string::npos) << n.name;
}

TEST_F(GradientTest, ValuesThatLeadNowhereSaySo) {
  const Var x = leaf("x", {3}), unused = leaf("unused", {3}), beside = leaf("beside", {3});
  node("other", "exp", {beside});
  auto g = gradients(total(x), {x, unused, beside});
  ASSERT_TRUE(g.ok());
  EXPECT_EQ(g->reasons[1], "no path leads to the loss");
  EXPECT_EQ(g->reasons[2], "no path leads to the loss");
  const Differentiability found = differentiability(graph, {unused.value()});
  ASSERT_EQ(found.reasons.size(), 1u);
  EXPECT_EQ(found.reasons[0], "no path leads to an output");
}

TEST_F(GradientTest, IntegersCarryNoGradient) {
  const Var x = leaf("x", {3});
  const Var integers = node("integers", "cast", {x}, {{"to", DType::i64}});
  auto g = gradients(total(node("back", "cast", {integers}, {{"to", DType::f64}})), {x});
  ASSERT_TRUE(g.ok());
  EXPECT_FALSE(g->values[0]);
  EXPECT_NE(g->reasons[0].find("node integers (cast): its results are not floating-point"), std::string::npos)
      << g->reasons[0];
}

TEST_F(GradientTest, EveryBlockingNodeIsNamed) {
  const Var x = leaf("x", {2, 3}), u = leaf("u", {2, 3});
  b.set_scope("indices");
  const Var indices = b.constant(Tensor({DType::i64, {2, 3}}));
  const Var scattered =
      node("scattered", "scatter_elements", {x, indices, u}, {{"axis", int64_t{1}}, {"reduction", "max"}});
  const Var odd = node("odd", "scatter_elements", {u, indices, x}, {{"axis", int64_t{1}}, {"reduction", "min"}});
  auto g = gradients(total(scattered + odd), {x, u});
  ASSERT_FALSE(g.ok());
  EXPECT_EQ(g.status().code(), Code::unsupported);
  EXPECT_NE(g.status().message().find("node scattered (scatter_elements)"), std::string::npos)
      << g.status().to_string();
  EXPECT_NE(g.status().message().find("node odd (scatter_elements)"), std::string::npos) << g.status().to_string();
}

TEST_F(GradientTest, ObstaclesAreReportedWithoutALoss) {
  const Var x = leaf("x", {2, 3}), y = leaf("y", {2, 3});
  const Var odd = node("odd", "gelu_grad", {x, x});
  node("aside", "floor", {x});  // leads to no output
  const Var stepwise = node("stepwise", "round", {y});
  const Var smooth = node("smooth", "exp", {x});
  graph.outputs = {{"a", smooth.value()}, {"b", stepwise.value()}, {"c", odd.value()}};
  const int nodes = graph.node_count();
  const Differentiability found = differentiability(graph, {x.value(), y.value()});
  ASSERT_EQ(found.obstacles.size(), 2u);
  EXPECT_EQ(found.obstacles[0].node, "odd");
  EXPECT_FALSE(found.obstacles[0].blocks) << "its record says why it has no gradient";
  EXPECT_EQ(found.obstacles[1].op, "round");
  EXPECT_FALSE(found.obstacles[1].blocks);
  EXPECT_EQ(found.reasons[0], "");
  EXPECT_NE(found.reasons[1].find("node stepwise (round)"), std::string::npos) << found.reasons[1];
  EXPECT_EQ(graph.node_count(), nodes);
}

TEST_F(GradientTest, ConstantExponentsKeepTheirOwnForm) {
  for (const double exponent : {0.0, 1.0, 2.0, 3.0, 0.5, -1.0}) {
    const Var x = leaf("x", {2});
    auto g = gradients(total(b.pow(x, b.like(x, exponent))), {x});
    ASSERT_TRUE(g.ok());
    ASSERT_TRUE(g->values[0]);
    for (int64_t i = 0; i < 2; ++i) {
      const double at = 0.25 * static_cast<double>(i + 1),
                   expected = exponent == 0 ? 0.0 : exponent * std::pow(at, exponent - 1);
      EXPECT_NEAR(value(g->values[0], i), expected, 1e-12) << exponent;
    }
  }
  // Squares and cubes, which norms and GELU are exported with, need no power in the backward pass.
  int powers = 0;
  for (const Node& n : graph.nodes()) powers += n.phase == Phase::backward && n.op->name == "pow";
  EXPECT_EQ(powers, 2);
}

TEST_F(GradientTest, TheLossMustBeOneFloatingNumber) {
  const Var x = leaf("x", {3});
  const auto g = gradients(node("vector", "exp", {x}), {x});
  ASSERT_FALSE(g.ok());
  EXPECT_NE(g.status().message().find("f64[3]"), std::string::npos);
}

TEST_F(GradientTest, TiesShareTheGradient) {
  const Var x = leaf("x", {1}), y = leaf("y", {1});
  auto g = gradients(total(b.maximum(x, y)), {x, y});
  ASSERT_TRUE(g.ok());
  EXPECT_EQ(value(g->values[0]), 0.5);
  EXPECT_EQ(value(g->values[1]), 0.5);
}

TEST_F(GradientTest, ValuesThatAreNotUsedByTheForwardNodeAreMadeAgain) {
  // A graph whose maker left out the optional results that gradients use.
  const Var x = leaf("x", {2, 3});
  Node norm{.name = "norm", .op = &op_named("layer_norm")};
  norm.inputs = {x.value()};
  ASSERT_TRUE(complete_attributes(*norm.op, norm.attributes).ok());
  const NodeId id = graph.add_node(std::move(norm), {x.type()});
  const Var y = b.var(graph.node(id).outputs[0]);
  auto g = gradients(total(y * y * y), {x});
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  EXPECT_TRUE(verify(graph).ok()) << verify(graph).to_string();
}

}  // namespace
}  // namespace epl::gradient_test
