// Sums over ranks of several hosts in two levels: each rank of a block sums a segment over its block, then over the
// ranks of the other blocks that have the same segment, and the ranks of the block gather all segments. A block is of
// one host, all of it where hosts have as many ranks each. So each byte goes once between hosts for all ranks of a
// block.
//
// Neighbours are a power of two and stand at a multiple of it, so they are a subtree of the canonical order: the sums
// have the same bits (core/backend/communicator.h).
#pragma once

#include <memory>
#include <span>

#include "core/backend/communicator.h"
#include "core/backend/cost_model.h"

namespace epl {

// How many neighbours of a group are a block: as many as divide it into subtrees of a sum of which none is of two
// hosts. 1: there are no such blocks, or no hosts, or what joins them goes round rings, which use the links of all
// ranks already. `ranks`: the group's, by their numbers in the job, ascending.
int64_t ranks_inside(const Machine& machine, std::span<const int> ranks);
// The first `inside` neighbours of a group, and those who have the same segment as the first of them.
struct TwoLevels {
  RankGroup near, far;
};
TwoLevels two_levels_of(std::span<const int> ranks, int64_t inside);
// An all-reduce of so many bytes in two levels, the first one over `inside` neighbours each.
double two_level_seconds(const CostModel& cost, std::span<const int> ranks, int64_t inside, double bytes);
// Whether that is faster than in one level.
bool two_levels_pay(const CostModel& cost, std::span<const int> ranks, int64_t inside, double bytes);

// A group whose all-reduces go in two levels where that is faster by `cost`; all other calls are those of `flat`.
// `flat` itself where there is nothing to gain. All ranks of it ask, with the same numbers.
Result<std::unique_ptr<Communicator>> in_two_levels(std::unique_ptr<Communicator> flat, std::span<const int> ranks,
                                                    const CostModel& cost);

}  // namespace epl
