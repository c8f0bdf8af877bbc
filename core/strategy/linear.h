// Nodes that take sums to sums, so that a sum that is pending may be taken behind them.
#pragma once

#include "core/ir/graph.h"

namespace epl {

// It only adds its operands, multiplies them by constants, or moves the one that it has, and gives one result.
bool adds_and_moves(const Graph& graph, const Node& node);

}  // namespace epl
