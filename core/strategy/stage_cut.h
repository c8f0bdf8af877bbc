// Where the stages of a pipeline begin that no scopes name (pipeline.num_stages).
#pragma once

#include <string>
#include <vector>

#include "core/backend/cost_model.h"
#include "core/strategy/plan.h"

namespace epl {

// The part of a node's name that the nodes of a repeated layer share: up to a number that more follows,
// "transformer.h.3" of "transformer.h.3.mlp.fc"; empty: it is of none.
std::string_view layer_of(std::string_view name);

struct StageCut {
  ByNode<int> node_stage;  // only those of the forward pass count
  std::string note;        // how the work is spread
};
// How the ranks of a job share out a step.
struct StageJob {
  int stages = 1;
  int64_t micro_batches = 1;
  int64_t ranks = 1, ranks_of_stage = 1;  // that share its work, by copies or by a split
  std::vector<double> speeds = {};        // by stage, of its slowest rank; empty: all are alike
};
// The nodes of the forward pass that see the inputs are cut, in their order, into runs of about the same seconds,
// backward pass included. Of the cuts whose largest run is within a twentieth of the smallest possible, those are taken
// that leave layers uncut, and then those over which least goes. What depends on no input is in the stage that needs it
// first.
//
// Entries of one plan share their weights: later entries follow the first one, by the names of nodes and weights.
Result<StageCut> cut_stages(const Graph& graph, const StageJob& job, const CostModel& cost, const Plan* first);

}  // namespace epl
