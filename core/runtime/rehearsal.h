// A step of a plan in virtual time, on the simulated device that stands for the plan's: what it will cost before there
// is any memory for it.
#pragma once

#include <memory>
#include <vector>

#include "core/compile/overview.h"

namespace epl {

// The first rank of each virtual device, where these represent all: the others have the same program and make the same
// calls at the same time, on devices and over links that are alike. Empty: they do not.
std::vector<int> representatives_of(const CompiledPlan& plan);

// From so many ranks on some represent all. Fewer are gone through in no time, and all of them are in a trace.
inline constexpr int64_t very_many = 1024;

// The trace refers to the plan's programs. Of so many ranks or more it has those that represent all.
Result<Rehearsal> rehearse(const Host& host, const std::shared_ptr<const CompiledPlan>& plan,
                           int64_t represented_from = very_many);

// Of a step that trains, as a mean over the shapes that a batch may have.
Result<double> seconds_of_step(const Host& host, const std::shared_ptr<const CompiledPlan>& plan);

}  // namespace epl
