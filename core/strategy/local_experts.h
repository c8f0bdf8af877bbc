// Experts that are nodes of their own, as a loop over them is exported. Each lies on a rank uncut: which of several
// nodes that are alike a rank runs, and which weights it has for them, follows from its coordinates, and the program is
// the same for all. Each expert runs by the kernels and in the order of sums of one rank, so bits are those of one
// rank.
//
// Where the number of ranks does not divide the number of experts, some ranks run a representative without an expert of
// their own, with weights that begin as zeros. No other node takes its results. A node that looks at all gradients (is
// any not finite?) gets zeros there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/strategy/pass.h"

namespace epl {

// Assigns the experts of a TaskGraph to the shards of its axes of experts: of E, expert e goes to shard e * shards / E.
// Experts are subgraphs of the TaskGraph that have no value and no weight in common, and are alike: the same ops on the
// same types, with weights of their own. Returns why there are none; empty: the plan has them.
Result<std::string> assign_experts(PassContext& c, int task_graph);

// The nodes in the order in which ranks run them, where those that are rank-local follow one another, representatives
// first: the order of the graph but for what they wait for. None where a node would wait for itself.
std::optional<std::vector<NodeId>> run_order(const Plan& plan);

// What nodes that are rank-local in one another's place must have in common.
Status verify_rank_local(const Plan& plan);

}  // namespace epl
