// What no scope matches and lies between nodes of an expert scope is in it as well: all its operands come from there,
// and all its results go there. So the weights of experts name the scope, and no token leaves between two products.
// What scatters tokens into slots, and gathers them from there, is in it too: it is where tokens change ranks.
#pragma once

#include "core/strategy/plan.h"

namespace epl {

// Both are TaskGraphs of one stage: nodes of `rest` become those of `experts`. node_task_graph has the forward pass.
void join_experts_of(Plan& plan, int experts, int rest);

}  // namespace epl
