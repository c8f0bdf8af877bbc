// Mixed precision as the strategy asks for it: the keys `amp.*`.
#pragma once

#include "core/compile/plan_options.h"
#include "core/train/mixed_precision.h"

namespace epl {

// An error where a key has a value that means nothing.
Result<MixedPrecision> read_mixed_precision(const PlanOptions& options);

}  // namespace epl
