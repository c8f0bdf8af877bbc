// A step of a plan in virtual time, on the simulated device that stands for the plan's: what it will cost before there
// is any memory for it.
#pragma once

#include <memory>

#include "core/compile/overview.h"

namespace epl {

// The trace refers to the plan's programs.
Result<Rehearsal> rehearse(const Host& host, const std::shared_ptr<const CompiledPlan>& plan);

// Of a step that trains, as a mean over the shapes that a batch may have.
Result<double> seconds_of_step(const Host& host, const std::shared_ptr<const CompiledPlan>& plan);

}  // namespace epl
