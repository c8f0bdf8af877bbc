// The choice of what is computed again that takes least time within so many bytes.
//
// What each block can do is searched in full (recompute_blocks.h). Blocks are joined from the first to the last by
// dynamic programming: of all joined ways up to a block those are left that no other beats in seconds, in bytes that
// are kept, and in bytes of results that are computed again early. Where there are too many they are thinned out, and a
// bound says how much less time another choice could take at most.
#pragma once

#include <optional>

#include "core/strategy/recompute_bound.h"

namespace epl {

struct RecomputeChoice {
  ComputedAgain again;
  double seconds = 0, peak = 0;
  double least_seconds = 0;  // of any choice within as many bytes
};

class RecomputeSolver {
 public:
  explicit RecomputeSolver(const RecomputeProblem& problem);

  // None: it finds none that fits.
  std::optional<RecomputeChoice> within(double bytes) const;
  // The least bytes that it finds, to a two hundredth, and within them the least time.
  RecomputeChoice least() const;
  // If nothing is computed again.
  double most() const { return most_; }
  const std::vector<RecomputeBlock>& blocks() const { return blocks_; }

 private:
  struct Found {
    ComputedAgain again;
    double least_seconds = 0;
  };
  std::optional<Found> joined(double bytes, double price, double slack) const;
  void improve(ComputedAgain& again, double bytes) const;
  double dearest() const;
  RecomputeChoice priced(ComputedAgain again, double bytes, double least_seconds, const PricedBound& bound) const;

  const RecomputeProblem& problem_;  // outlives it
  const std::vector<RecomputeBlock> blocks_;
  double most_ = 0;
};

}  // namespace epl
