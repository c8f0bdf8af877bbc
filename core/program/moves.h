// What lies in another memory than that in which kernels compute (Plan::value_memory): the transfers to there and back,
// as nodes of the local graph.
#pragma once

#include <vector>

#include "core/backend/cost_model.h"
#include "core/program/local_graph.h"

namespace epl {

// Each block fetches what lies elsewhere in front of the first node of a phase that takes it, and evicts it behind the
// node that makes it. State is there by LocalGraph::homes; `results` says which results of nodes go there until another
// phase, or another block, takes them. The original dies when its own phase has used it.
void write_moves(LocalGraph& local, const std::vector<StateHome>& results);

// Whether a node brings a value from another memory.
bool is_fetch(const Node& node);

// For devices that copy beside what they compute: the graph of `local`, fused or not, in which each fetch stands so
// early that what it brings is there when it is needed, by the cost model and with one stream for all fetches. What has
// come and waits raises the peak of its block only where the copy has no other time than that of the node before. State
// may come before the state begins to change.
Graph with_fetches_ahead(const Graph& graph, const LocalGraph& local, const CostModel& cost);

}  // namespace epl
