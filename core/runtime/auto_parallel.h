// Plans whose stages, copies, splits, schedule, micro-batches, shards and recomputation are found
// (`auto.auto_parallel`).
#pragma once

#include <memory>

#include "core/compile/compiled_plan.h"

namespace epl {

// As plan_within_budget. With `auto.auto_parallel`, layers are measured on one copy for each way to cut them, a search
// over numbers gives candidates, and those whose steps are the shortest in numbers (core/strategy/search_step.h) are
// made into plans and rehearsed beside the strategy as it is. The fastest is taken. Keys that the strategy sets stay as
// they are. The plan's notes say what was taken, and what decided. A deadline ends the search, and the best so far is
// taken, with a note; without one, and where processes must come to the same plan, it is an error.
Result<std::shared_ptr<const CompiledPlan>> plan_in_parallel(const Host& host, const PlanOptions& options);

}  // namespace epl
