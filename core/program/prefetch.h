// For devices whose groups of ranks have streams of their own: weights that are stored in shards are gathered while the
// layer before computes.
#pragma once

#include "core/ir/graph.h"

namespace epl {

// The graph of a LocalGraph in which each gather of a parameter stands where the gather before it was needed: so a
// block has two gathered weights in memory, and the second one comes while the first one is used. On a device with one
// stream this would take memory and save no time.
Graph with_prefetch(const Graph& graph);

}  // namespace epl
