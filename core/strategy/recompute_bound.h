// Seconds that no choice of what is computed again is below, within so many bytes.
#pragma once

#include "core/strategy/recompute_blocks.h"

namespace epl {

struct PricedBound {
  double seconds = 0;
  double price = 0;  // seconds for a byte, at which that holds
  size_t block = 0;  // whose steps have to fit
};
// Of all moments one block's steps alone have to fit, and a byte there has a price (Lagrangian relaxation). The best of
// several blocks and prices counts.
PricedBound priced_bound(const RecomputeProblem& problem, const std::vector<RecomputeBlock>& blocks, double bytes);
// The steps of every block have to fit, and a byte has a price of its own in each, which begins with that of `one`.
// Prices rise where too many bytes are there and fall where there are less (subgradients; Held, Wolfe, Crowder, 1974).
// `choice`: seconds of any choice that fits, by which steps are as long as Polyak says.
double bound_by_all_steps(const RecomputeProblem& problem, const std::vector<RecomputeBlock>& blocks, double bytes,
                          const PricedBound& one, double choice);

}  // namespace epl
