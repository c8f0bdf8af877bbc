// Which of the ways to keep to a budget is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/base/status.h"

namespace epl {

// In the order of time. The last one has least bytes by estimate, and fits.
struct WaysWithin {
  size_t count = 0;
  size_t fast = 0;  // so many of them are fast enough to be of use
  int64_t budget = 0;
  int64_t least = 0;                                 // exact peak of the last
  std::function<Result<int64_t>(size_t way)> weigh;  // exact peak of a way
};

struct WayTaken {
  size_t way = 0;
  int64_t peak = 0;
};

// The first whose exact peak fits, whatever order exact peaks stand in. So more budget never takes longer. Nor has less
// a higher peak: what a larger budget takes earlier does not fit into the smaller one. A way below `least` is passed
// over. Else a budget below `least` would know nothing of it, and the same would not hold for several lists of which
// the fastest way counts. None: no way is fast enough.
Result<std::optional<WayTaken>> first_within(const WaysWithin& ways);

// For many ways of a large plan: by halves, as if exact peaks stood in the order of the ways. Which ways are looked at
// follows from the answers alone, so more budget never takes longer. Where they stand in another order, less budget may
// have a higher peak, which is still within it.
Result<std::optional<WayTaken>> within_by_halves(const WaysWithin& ways);

}  // namespace epl
