#include "core/compile/process_memory.h"

#include <algorithm>

#include "core/compile/plan_memory.h"

namespace epl {
namespace {

// Weights are read from and written to files in chunks of this size, one at a time, with a copy in a pending write.
constexpr int64_t room_bytes = 8 << 20;
// A program that uses the library, with its libraries, the heap's own needs and stacks.
constexpr int64_t program_bytes = 20 << 20;
constexpr int64_t instruction_bytes = 4 << 10;

}  // namespace

ProcessMemory process_memory(const CompiledPlan& plan) {
  ProcessMemory out;
  int64_t largest = 0, instructions = 0, constants = 0;
  for (const ModelInitializer& one : plan.options().model->initializers())
    largest = std::max(largest, one.type.bytes());
  for (const Entry& entry : plan.entries()) {
    for (const Program& program : entry.programs) {
      instructions += static_cast<int64_t>(program.instructions.size());
      constants += program.constant_bytes;
    }
  }
  int64_t ranks = 0;
  for (int t = 0; t < plan.virtual_devices(); ++t) {
    const PlanMemory memory(plan);
    ranks += plan.mesh(t).ranks() * (memory.peak(t) + memory.peak(t, MemoryKind::host));
  }
  out.items = {{"memory of all ranks", ranks},
               {"weights on their way from and to files", room_bytes},
               {"constants, as the plan keeps them", constants},
               {"program and plan, about", program_bytes + instructions * instruction_bytes}};
  for (const MemoryItem& item : out.items) out.peak += item.bytes;
  // Importing looks at one weight at a time, before there is memory for ranks.
  out.peak = std::max(out.peak, out.peak - ranks + largest);
  return out;
}

}  // namespace epl
