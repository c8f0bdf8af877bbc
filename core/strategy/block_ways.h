// All that one block of a recompute problem can do, by trying everything.
#pragma once

#include "core/strategy/recompute_blocks.h"

namespace epl {

struct BlockProblem {
  // Its nodes and steps alone. Steps that come later than those of blocks before it have no bytes that count.
  RecomputeProblem own;
  int in = -1, out = -1;            // results that come in and go on; -1: none
  bool in_is_taken_before = false;  // steps of the block before take what comes in, so that it stays
};
BlockWays ways_of(const BlockProblem& block);

}  // namespace epl
