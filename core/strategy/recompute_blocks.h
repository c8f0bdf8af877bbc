// The blocks of a recompute problem, and all that a block can do.
//
// Between two blocks goes one result at most. So a block meets those before it in that result and in sums of bytes
// alone, and blocks that are alike are searched once. Results that go over many nodes (a mask, what an encoder gives)
// belong to no block: they are kept wherever they are needed again.
//
// Of all choices in a block those are left that no other beats in time and in every sum of bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/strategy/recompute_problem.h"

namespace epl {

// What happens to the result that goes to the next block. `stays`: that block does not need it again, but it is kept.
// `early`: it is computed again while the next block is in its steps.
enum class GoesOn : uint8_t { not_needed, stays, kept, early };

struct BlockWay {
  GoesOn out = GoesOn::not_needed;
  bool takes = false;    // it needs again what comes from the block before
  bool through = false;  // and that for a result that it gives early
  double seconds = 0;
  double kept = 0;   // bytes until its steps
  double early = 0;  // bytes from when its result is given early until its steps
  // Bytes at most in its steps, beside what is kept before it: where that which comes in is kept; where it is computed
  // again, before it is there and from then on.
  double whole = 0, before = 0, after = 0;
  double forward = 0, forward_kept = 0;  // while its nodes run; if what comes in is kept and counted there
  std::vector<int> again;                // nodes, from the first of the block
};
struct BlockWays {
  std::vector<BlockWay> ways;
  bool all = true;  // no better one has been left out
};

struct RecomputeBlock {
  int begin = 0, end = 0;  // nodes
  std::shared_ptr<const BlockWays> ways;
  // Bytes beside those of the ways: in its steps, at most and at least, and at most while its nodes run.
  double steps = 0, least_steps = 0, forward = 0;
};
std::vector<RecomputeBlock> blocks_of(const RecomputeProblem& problem);
// How many of them differ.
int different_blocks(const std::vector<RecomputeBlock>& blocks);

}  // namespace epl
