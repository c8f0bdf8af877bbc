// The forward and the backward pass of a stage as a recompute problem.
#pragma once

#include "core/backend/cost_model.h"
#include "core/strategy/plan.h"
#include "core/strategy/recompute_problem.h"
#include "core/strategy/solved_recompute.h"

namespace epl {

bool in_forward_pass(const Plan& plan, NodeId n);
bool in_backward_pass(const Plan& plan, NodeId n);
int stage_of(const Plan& plan, NodeId n);
int virtual_device_of_stage(const Plan& plan, int stage);
// Micro-batches whose forward calls of a stage have ended and whose backward calls have not begun, at most.
double micro_batches_in_flight(const Plan& plan, int stage);
// A view has the bytes of what it looks at.
Value viewed(const Graph& graph, Value v);
// Bytes of a result that a rank has.
double result_bytes(const Plan& plan, Value v);

// Nodes that may be computed again. Run once are those whose results would have to be sent or summed again or that the
// caller gets, nodes that ranks have alone, and ops of the host.
ByNode<bool> nodes_that_may(const Plan& plan);

struct StageProblem {
  RecomputeProblem problem;
  std::vector<NodeId> nodes;  // those of the problem; views are not among them
};
StageProblem stage_problem(const Plan& plan, const CostModel& cost, int stage, const ByNode<bool>& may);

// Peaks by the problems of all stages, of the stage that has most: if nothing is computed again, and at least.
struct RecomputeRange {
  double least = 0, most = 0;
};
RecomputeRange recompute_range(const Plan& plan, const CostModel& cost, SolvedRecompute& solved);
// Bytes that a stage may have where a virtual device may have so many: its stages share what state leaves them.
double bytes_of_stage(const Plan& plan, const RecomputeProblem& problem, int stage, double bytes);

}  // namespace epl
