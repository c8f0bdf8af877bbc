// For devices that cannot read the host's memory: the caller's tensors are uploaded where a block first uses them.
// Programs of other devices have no uploads.
#pragma once

#include "core/program/local_graph.h"

namespace epl {

// The graph of a LocalGraph with an `upload` for each input and block that uses it. A slice of an input uploads its
// shard itself. `leaving`: the block in which an input that is an output as well is given back.
Graph with_uploads(const Graph& graph, int leaving);

}  // namespace epl
