#include "core/compile/budget_ways.h"

#include <algorithm>

namespace epl {

Result<std::optional<WayTaken>> first_within(const WaysWithin& ways) {
  const size_t last = ways.count - 1;
  for (size_t way = 0; way < std::min(ways.fast, last); ++way) {
    EPL_ASSIGN(const int64_t peak, ways.weigh(way));
    if (peak <= ways.budget && peak >= ways.least) return std::optional(WayTaken{way, peak});
  }
  if (ways.fast <= last) return std::optional<WayTaken>();
  return std::optional(WayTaken{last, ways.least});
}

Result<std::optional<WayTaken>> within_by_halves(const WaysWithin& ways) {
  size_t begin = 0;
  WayTaken end{ways.count - 1, ways.least};
  while (begin < end.way && begin < ways.fast) {
    const size_t middle = begin + (end.way - begin) / 2;
    EPL_ASSIGN(const int64_t peak, ways.weigh(middle));
    if (peak <= ways.budget) {
      end = {middle, peak};
    } else {
      begin = middle + 1;
    }
  }
  // Where it has ended early, all that are left are too slow.
  return begin < end.way || end.way >= ways.fast ? std::optional<WayTaken>() : std::optional(end);
}

}  // namespace epl
