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
// in the order of the nodes that use it. An op on a path that has neither gradient nor body, nor a reason to have none
// (OpDef::no_gradient), is an error that names the node.
Result<Gradients> add_gradients(Graph& graph, Value loss, const std::vector<Value>& wanted);

}  // namespace epl
