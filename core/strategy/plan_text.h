// The text form of a plan with the reasons of its decisions; without them it is print_plan of core/strategy/plan.h.
#pragma once

#include <string>

#include "core/strategy/plan.h"

namespace epl {

// Behind the line of each node what `Plan::why` says of it. `parse_plan` reads both forms.
std::string print_plan_with_reasons(const Plan& plan);

}  // namespace epl
