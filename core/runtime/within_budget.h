// Plans within a budget of memory by all that changes no number: what is computed again, what copies keep in shards,
// what lies in another memory, and how many micro-batches there are (`memory.budget`).
#pragma once

#include <memory>

#include "core/compile/compiled_plan.h"

namespace epl {

// As CompiledPlan::create. Within a budget, keys that the strategy does not set are chosen: `zero.level`,
// `offload.level`, `offload.values`, and `pipeline.num_micro_batch` where micro-batches are not independent. Each
// combination that may be the fastest is planned, and its step is rehearsed. Of those that fit the one with the fastest
// step is taken, also where the plan fits as it is. So with more budget no step takes longer, and with less no rank has
// more. A job over several processes chooses for ranks of one thread, so that all choose alike. The plan's notes say
// what was chosen, and what that costs. If none fits, the error says how many bytes are missing, and which keys bring a
// rank nearest.
Result<std::shared_ptr<const CompiledPlan>> plan_within_budget(const Host& host, const PlanOptions& options);

}  // namespace epl
