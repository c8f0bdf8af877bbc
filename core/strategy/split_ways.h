// The ways to cut a node that the split pass weighs against each other.
#pragma once

#include <vector>

#include "core/strategy/split_state.h"

namespace epl {

// The largest piece of an uneven cut, in parts.
inline int64_t largest_piece(const SplitState& s, const CutFactor& factor) {
  return (factor.of + s.parts - 1) / s.parts;
}
// Whether there are pieces of the factor, inside the runs that a cut of the batch leaves. Segments of a sum begin
// where no piece ends, which only equal ones grant.
bool fits(const SplitState& s, NodeId n, const CutFactor& factor);
// The factors that operands bring, and of a node with much work all others, as what uses its results would like them.
std::vector<CutFactor> ways_to_cut(const SplitState& s, NodeId n, const std::vector<PinnedOperand>& pinned);

}  // namespace epl
