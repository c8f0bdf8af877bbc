// Seconds that no choice of what is computed again is below, within so many bytes.
#pragma once

#include "core/strategy/recompute_blocks.h"

namespace epl {

struct PricedBound {
  double seconds = 0;
  double price = 0;  // seconds for a byte, at which that holds
};
// Of all moments one block's steps alone have to fit, and a byte there has a price (Lagrangian relaxation). The best of
// several blocks and prices counts.
PricedBound priced_bound(const RecomputeProblem& problem, const std::vector<RecomputeBlock>& blocks, double bytes);

}  // namespace epl
