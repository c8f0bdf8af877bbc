// The decisions of a compiled plan to a plan file and back.
#pragma once

#include <string_view>

#include "core/compile/compiled_plan.h"
#include "core/compile/plan_file.h"

namespace epl {

// `version` is that of the library.
PlanFile decisions_of(const CompiledPlan& plan, std::string_view version);
// Takes what the caller has left open, strategy and ranks, from the file; what differs is an error that names it.
Status take_decisions(const PlanFile& file, std::string_view version, bool has_strategy, PlanOptions& options);

}  // namespace epl
