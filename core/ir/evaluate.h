// Computes a graph on host tensors by the meaning of its ops, node by node. It is slow and simple: constant folding and
// test oracles use it, training does not.
#pragma once

#include <map>
#include <vector>

#include "core/ir/graph.h"

namespace epl {

// Values of leaves by index; constants and initial data are taken from the graph where none is given. Returns every
// value of the graph, indexed by Value::index. A result whose leaves are missing is an error that names the node.
Result<std::vector<Tensor>> evaluate_graph(const Graph& graph, const std::map<Value, Tensor>& leaves,
                                           uint64_t seed = 0);

}  // namespace epl
