// What holds the memory of a rank at its peak, by what it is there for and by name: why a plan needs as much as it
// does.
#pragma once

#include <string>
#include <vector>

#include "core/compile/compiled_plan.h"

namespace epl {

struct Peak {
  struct Value {
    std::string name, node;  // of several, with * for the numbers in which they differ
    std::string phase;       // in which it is made; empty: it is there before a step
    std::string kind;
    int64_t bytes = 0;  // of all of them
    int values = 1;     // whose names differ in numbers alone, as those of layers do
  };
  std::string entry;              // that needs the largest arena
  std::vector<MemoryItem> kinds;  // all of the peak, the most bytes first
  std::vector<Value> largest;     // the most bytes first
};

// Of a rank of a virtual device, in the memory in which kernels compute.
Peak peak_of(const CompiledPlan& plan, int virtual_device);

// Layers are alike: "transformer.h.*.ln_1.weight" for twelve.
std::string without_numbers(const std::string& text);

}  // namespace epl
