// Weights that several scopes use.
#pragma once

#include "core/strategy/plan.h"

namespace epl {

// A weight lies in one way. Where two scopes use it, and one of them cuts it, both must be of the same degree: on ranks
// of its own a scope would need shards that the other one does not have; on the same ranks it may still be replicated.
// The error names the weight, both scopes and their numbers of ranks.
Status check_shared_weights(const Plan& plan);

}  // namespace epl
