// What the ranks of a plan need, in bytes, and what for.
#pragma once

#include <cstdint>
#include <vector>

#include "core/compile/compiled_plan.h"

namespace epl {

// Looks at the plan, which outlives it.
class PlanMemory {
 public:
  explicit PlanMemory(const CompiledPlan& plan) : plan_(plan) {}

  // Of one rank of a class at its peak: arena of the largest entry, state, constants and scalars of all entries.
  int64_t peak(int rank_class) const;
  int64_t arena(int rank_class) const;
  // Of the rank that needs most.
  int fullest_class() const;
  int64_t peak() const { return peak(fullest_class()); }
  int64_t arena() const { return arena(fullest_class()); }
  std::vector<MemoryItem> items() const;

  // Of a rank that predicts and does nothing else: its arena and what it reads of the state, which lies first.
  int64_t prediction_arena(int rank_class) const;
  int64_t prediction_state(int rank_class) const;
  // All that such a rank needs; 0: there is no such entry.
  int64_t prediction(int rank_class) const;

 private:
  // Programs that a class of ranks predicts with, one for each shape.
  std::vector<const Program*> predicting(int rank_class) const;

  const CompiledPlan& plan_;
};

}  // namespace epl
