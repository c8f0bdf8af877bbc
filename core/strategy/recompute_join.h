// Blocks of a recompute problem, joined within so many bytes.
#pragma once

#include <optional>

#include "core/strategy/recompute_blocks.h"

namespace epl {

struct RecomputeLimit {
  double bytes = 0;                 // beside those that are there at all times
  double least_kept = 0, kept = 0;  // what may be kept for one micro-batch
  double others = 0;                // how many other micro-batches keep as much
  bool bound = false;               // find no choice, but seconds that none is below
};
struct JoinedWays {
  double seconds = 0;
  ComputedAgain again;  // empty for a bound
};
std::optional<JoinedWays> join_blocks(const RecomputeProblem& problem, const std::vector<RecomputeBlock>& blocks,
                                      const RecomputeLimit& limit);

}  // namespace epl
