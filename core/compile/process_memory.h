// What a process needs that plans a job, runs it and saves it: the ranks' memory, which is exact, and what lies around
// it, which is estimated from above.
#pragma once

#include "core/compile/compiled_plan.h"

namespace epl {

struct ProcessMemory {
  std::vector<MemoryItem> items;
  int64_t peak = 0;  // bytes
};
ProcessMemory process_memory(const CompiledPlan& plan);

}  // namespace epl
