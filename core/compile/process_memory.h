// What a process needs that plans a job, runs it and saves it: the ranks' memory, which is exact, and what lies around
// it, which is estimated. All pages count that are in memory, those of files as well: it is the Rss of
// /proc/PID/smaps_rollup at its peak, and ru_maxrss of getrusage. What a pack brings, what a reader keeps of a table
// and what the host has of its own come on top.
#pragma once

#include "core/compile/compiled_plan.h"

namespace epl {

struct ProcessMemory {
  std::vector<MemoryItem> items;
  int64_t peak = 0;  // bytes
};
ProcessMemory process_memory(const CompiledPlan& plan);

}  // namespace epl
