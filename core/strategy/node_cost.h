// What nodes have to do, and who does things together, in the words of a cost model.
#pragma once

#include <vector>

#include "core/backend/cost_model.h"
#include "core/strategy/plan.h"

namespace epl {

// All of a node.
Work work_of(const Graph& graph, const Node& node);
// What a rank does of a node in one call, under a sharding.
Work work_of(const Plan& plan, NodeId n, NodeSharding sharding);
// Seconds of that, and of the launch. A view takes none.
double node_seconds(const CostModel& cost, const Plan& plan, NodeId n, const NodeSharding& sharding);
// Bytes of a value that a rank of a TaskGraph has under a sharding.
double local_bytes(const Plan& plan, int task_graph, const TensorType& type, const Sharding& sharding);
// The ranks of a TaskGraph's first rank along these axes.
RankGroup rank_group(const Plan& plan, int task_graph, const std::vector<int>& axes);

}  // namespace epl
