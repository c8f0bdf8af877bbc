// Rewrites a graph of float64 values and holds the result against the original.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>

#include "core/autodiff/gradient.h"
#include "core/ir/evaluate.h"
#include "core/rewrite/rewrite.h"

namespace epl {

inline int count_op(const Graph& graph, std::string_view op) {
  int count = 0;
  for (const Node& node : graph.nodes()) count += node.op->name == op;
  return count;
}

inline Tensor random_tensor(const TensorType& type, std::mt19937& random) {
  std::normal_distribution<double> normal;
  Tensor data(type);
  for (int64_t i = 0; i < data.elements(); ++i) {
    data.set(i, is_float(type.dtype)           ? normal(random)
                : type.dtype == DType::boolean ? random() % 3 != 0
                                               : random() % 4);
  }
  return data;
}

// Leaves of both graphs correspond by name; those without data get random numbers, or those that `given` names.
inline void expect_equal(const Graph& graph, const Graph& other, double tolerance = 1e-10,
                         const std::map<std::string, Tensor>& given = {}) {
  ASSERT_TRUE(verify(other).ok()) << verify(other).to_string() << "\n" << print_graph(other);
  std::mt19937 random(7);
  std::map<Value, Tensor> leaves, other_leaves;
  for (int i = 0; i < graph.value_count(); ++i) {
    const ValueInfo& info = graph.value(Value{i});
    if (info.kind == ValueKind::result || !info.data.empty()) continue;
    const auto named = given.find(info.name);
    const Tensor data = named != given.end() ? named->second : random_tensor(info.type, random);
    leaves[Value{i}] = data;
    if (Value same = other.find(info.name)) other_leaves[same] = data;
  }
  auto expected = evaluate_graph(graph, leaves), got = evaluate_graph(other, other_leaves);
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  ASSERT_EQ(graph.outputs.size(), other.outputs.size());
  for (size_t k = 0; k < graph.outputs.size(); ++k) {
    const Tensor &a = (*expected)[graph.outputs[k].value.index], &b = (*got)[other.outputs[k].value.index];
    ASSERT_EQ(a.type(), b.type()) << graph.outputs[k].name;
    for (int64_t i = 0; i < a.elements(); ++i) {
      const double x = a.get(i), y = b.get(i);
      if (std::isnan(x) && std::isnan(y)) continue;
      ASSERT_LE(std::fabs(x - y), tolerance * (1 + std::fabs(x)))
          << graph.outputs[k].name << "[" << i << "] " << x << " became " << y;
    }
  }
}

inline Graph rewritten(const Graph& graph) {
  auto made = rewrite_graph(graph);
  if (!made.ok()) {
    ADD_FAILURE() << made.status().to_string();
    return graph;
  }
  expect_equal(graph, *made);
  return *std::move(made);
}

// The same graph with the gradients of a weighted sum of its first output by all its inputs and parameters as further
// outputs.
inline Graph with_gradients(Graph graph) {
  Builder b(graph);
  const Var y = b.var(graph.outputs[0].value);
  std::mt19937 random(11);
  Ints axes;
  for (int d = 0; d < y.ndim(); ++d) axes.push_back(d);
  const Var loss = b.sum(y * b.constant(random_tensor({y.dtype(), y.shape()}, random)), axes, false);
  std::vector<Value> wanted;
  for (int i = 0; i < graph.value_count(); ++i) {
    const ValueInfo& info = graph.value(Value{i});
    const bool trains = info.kind == ValueKind::input || info.kind == ValueKind::parameter;
    if (trains && is_float(info.type.dtype)) wanted.push_back(Value{i});
  }
  auto gradients = add_gradients(graph, loss.value(), wanted);
  EXPECT_TRUE(gradients.ok()) << gradients.status().to_string();
  for (size_t i = 0; gradients.ok() && i < wanted.size(); ++i) {
    if (gradients->values[i])
      graph.outputs.push_back({"gradient of " + graph.value(wanted[i]).name, gradients->values[i]});
  }
  return graph;
}

// A graph in the making, for tests to write patterns with.
struct Sketch {
  Graph graph;
  Builder b{graph};
  Var input(std::string name, Shape shape, DType type = DType::f64) {
    return b.var(graph.add_input(std::move(name), {type, std::move(shape)}));
  }
  Var parameter(std::string name, Shape shape) {
    return b.var(graph.add_leaf(ValueKind::parameter, std::move(name), {DType::f64, std::move(shape)}));
  }
  Graph finish(const Var& y) {
    EXPECT_TRUE(b.status().ok()) << b.status().to_string();
    graph.outputs.push_back({"y", y.value()});
    return graph;
  }
};

}  // namespace epl
