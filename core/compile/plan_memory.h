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

  // Of one rank of a virtual device at its peak: arena of the largest entry, state, constants and scalars of all
  // entries. In the memory in which kernels compute, if none is named.
  int64_t peak(int virtual_device, MemoryKind memory = MemoryKind::device) const;
  MemoryBytes arenas(int virtual_device) const;
  int64_t arena(int virtual_device) const { return arenas(virtual_device)[MemoryKind::device]; }
  // Of the rank that needs most there.
  int fullest_class() const;
  int64_t peak() const { return peak(fullest_class()); }
  int64_t arena() const { return arena(fullest_class()); }
  std::vector<MemoryItem> items() const;

  // Of a rank that predicts and does nothing else: its arenas and what it reads of the state, which lies first.
  MemoryBytes prediction_arenas(int virtual_device) const;
  MemoryBytes prediction_state(int virtual_device) const;
  // All that such a rank needs, in the memory in which kernels compute; 0: there is no such entry.
  int64_t prediction(int virtual_device) const;

 private:
  // Programs that a virtual device predicts with, one for each shape.
  std::vector<const Program*> predicting(int virtual_device) const;

  const CompiledPlan& plan_;
};

}  // namespace epl
