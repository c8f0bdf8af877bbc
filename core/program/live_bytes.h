// How many bytes results of nodes have in memory while each node runs, before there are instructions and addresses.
#pragma once

#include "core/ir/graph.h"

namespace epl {

// About: by the order of the nodes, without what kernels need beside their operands. An elementwise node writes over an
// operand that nobody takes behind it. Leaves do not count, nor does what lies in another memory, nor new state, which
// is written over the old.
ByNode<int64_t> live_bytes(const Graph& graph);

}  // namespace epl
