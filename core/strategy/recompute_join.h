// Blocks of a recompute problem, joined within so many bytes.
#pragma once

#include <optional>

#include "core/strategy/recompute_blocks.h"

namespace epl {

struct RecomputeLimit {
  double bytes = 0;                 // beside those that are there at all times
  double least_kept = 0, kept = 0;  // what one micro-batch keeps
  double others = 0;                // how many other micro-batches keep the least of it
  double price = 0;                 // about what a byte that is kept is worth, in seconds
  double slack = 0;                 // seconds that a part of the best choice may be behind the best part, about
};
struct JoinedWays {
  double seconds = 0;
  ComputedAgain again;
  bool least = false;  // nothing takes less time within the limit
};
std::optional<JoinedWays> join_blocks(const RecomputeProblem& problem, const std::vector<RecomputeBlock>& blocks,
                                      const RecomputeLimit& limit);

}  // namespace epl
