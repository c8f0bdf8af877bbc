// Reverse-mode differentiation, graph to graph: the gradients of a scalar as further nodes of the same graph.
#pragma once

#include <string>
#include <vector>

#include "core/ir/op.h"

namespace epl {

struct Gradients {
  std::vector<Value> values;         // for each wanted value its gradient, of its type; Value{} where there is none
  std::vector<std::string> reasons;  // why there is none, naming the node that cuts the path; empty where there is one
};

// Adds nodes of Phase::backward to `graph`. `loss` is a float of one element. Several paths into one value are summed
// in the order of the nodes that use it, or joined where they are slices that fill a dimension. If an op on a path has
// neither gradient nor body, nor a reason to have none (OpDef::no_gradient), or if a gradient refuses, one error names
// every such node. The graph then has only part of the backward nodes and must be dropped.
// `scale`: a number that all gradients are multiplied with on the way, because they begin with it; absent: with 1.
Result<Gradients> add_gradients(Graph& graph, Value loss, const std::vector<Value>& wanted, Value scale = {});

// A node of a forward graph that lets no gradient of its results reach the wanted values.
struct GradientObstacle {
  std::string node, op, reason;
  bool blocks = false;  // training through it is an error; otherwise it cuts the path on purpose, as PyTorch does
};

// What can be said of training before a loss is chosen; the graph is not changed. A gradient that refuses for its
// operands shows only in add_gradients.
struct Differentiability {
  std::vector<GradientObstacle> obstacles;  // between the wanted values and an output, in the order of the nodes
  std::vector<std::string> reasons;         // for each wanted value why no output can train it; empty where one can
};
Differentiability differentiability(const Graph& graph, const std::vector<Value>& wanted);

}  // namespace epl
