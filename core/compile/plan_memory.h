// What the ranks of a plan need of each memory, in bytes, and what for.
#pragma once

#include <cstdint>
#include <vector>

#include "core/compile/compiled_plan.h"

namespace epl {

// Looks at the plan, which outlives it.
class PlanMemory {
 public:
  explicit PlanMemory(const CompiledPlan& plan) : plan_(plan) {}

  // Of one rank of a class at its peak: arena of the largest entry, state, constants and scalars of all entries. In the
  // memory in which kernels compute, if none is named.
  int64_t peak(int rank_class, MemoryKind memory = MemoryKind::device) const;
  MemoryBytes arenas(int rank_class) const;
  int64_t arena(int rank_class) const { return arenas(rank_class)[MemoryKind::device]; }
  // Of the rank that needs most there.
  int fullest_class() const;
  int64_t peak() const { return peak(fullest_class()); }
  int64_t arena() const { return arena(fullest_class()); }
  std::vector<MemoryItem> items() const;

  // Of a rank that predicts and does nothing else: its arenas and what it reads of the state, which lies first.
  MemoryBytes prediction_arenas(int rank_class) const;
  MemoryBytes prediction_state(int rank_class) const;
  // All that such a rank needs, in the memory in which kernels compute; 0: there is no such entry.
  int64_t prediction(int rank_class) const;

 private:
  // Programs that a class of ranks predicts with, one for each shape.
  std::vector<const Program*> predicting(int rank_class) const;

  const CompiledPlan& plan_;
};

}  // namespace epl
