// What a device that cannot read the host's memory needs: the caller's tensors are brought to it where a block first
// uses them. Programs of other devices do without.
#pragma once

#include "core/program/local_graph.h"

namespace epl {

// The graph of a LocalGraph with an `upload` for each input and block that uses it. What takes a piece of an input
// brings that piece alone.
// `leaving`: the block in which an input that is an output as well is given back.
Graph with_uploads(const Graph& graph, BlockKind leaving);

}  // namespace epl
