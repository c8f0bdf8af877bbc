#include "core/compile/process_memory.h"

#include <algorithm>
#include <set>

#include "core/compile/plan_memory.h"

namespace epl {
namespace {

// Weights are read from and written to files in chunks of this size, one at a time, with a copy in a pending write.
constexpr int64_t room_bytes = 8 << 20;
// Pages of files, of the command line, the library and those of C++ and C. A pack has its own on top.
constexpr int64_t code_bytes = 13 << 20;
// What there is of objects beside the plan: the engine's tables, the model without its weights, the job.
constexpr int64_t object_bytes = 3 << 19;
// An instruction with the nodes of the graphs that it was made from, of all stages that a plan keeps.
constexpr int64_t instruction_bytes = 16 << 10;
// A stack, and what an allocator keeps for a thread.
constexpr int64_t thread_bytes = 64 << 10;
// The thread that steps, and the one that reads data.
constexpr int64_t other_threads = 2;
// The threads of a file with values, one for each direction, and the commands that wait for each.
constexpr int64_t file_bytes = 2 * (thread_bytes + (80 << 10));
// Batches that are read ahead, and the one that a step is given.
constexpr int64_t batches_held = 3;

int64_t bytes_of(const std::vector<Port>& ports) {
  int64_t bytes = 0;
  for (const Port& port : ports) bytes += port.global_type.bytes();
  return bytes;
}

// A value that has two names, as the scores of a loss that the model gives, is asked for by one of them.
int64_t bytes_of_results(const Entry& entry) {
  std::set<Value> given;
  int64_t bytes = 0;
  for (const Graph::Output& output : entry.plan.graph->outputs) {
    if (given.insert(output.value).second) bytes += entry.plan.global_type(output.value).bytes();
  }
  return bytes;
}

}  // namespace

ProcessMemory process_memory(const CompiledPlan& plan) {
  ProcessMemory out;
  const PlanMemory memory(plan);
  int64_t largest = 0, instructions = 0, constants = 0, inputs = 0, outputs = 0;
  for (const ModelInitializer& one : plan.options().model->initializers())
    largest = std::max(largest, one.type.bytes());
  for (const Entry& entry : plan.entries()) {
    inputs = std::max(inputs, bytes_of(entry.inputs));
    outputs = std::max(outputs, bytes_of_results(entry));
    for (const Program& program : entry.programs) {
      instructions += static_cast<int64_t>(program.instructions.size());
      constants += program.constant_bytes;
    }
  }
  int64_t ranks = 0, beside = 0, state = 0, files = 0;
  for (int t = 0; t < plan.virtual_devices(); ++t) {
    const int64_t alike = plan.mesh(t).ranks();
    ranks += alike * memory.peak(t);
    beside += alike * memory.peak(t, MemoryKind::host);
    for (const MemoryKind kind : memory_kinds) state += alike * plan.state_of(t).bytes(kind);
    for (const int64_t bytes : {memory.arenas(t)[MemoryKind::file], plan.state_of(t).bytes(MemoryKind::file)})
      files += bytes > 0 ? alike : 0;
  }
  const int64_t threads = plan.options().ranks * plan.threads_per_rank() + other_threads;
  out.items = {{"memory of all ranks", ranks},
               {"memory of the kind host, of all ranks", beside},
               {"weights on their way from and to files", std::min(room_bytes, state)},
               {"batches of data, and results on the host", batches_held * inputs + outputs},
               {"constants, as the plan keeps them", constants},
               {"graphs, plans and programs, about", object_bytes + instructions * instruction_bytes},
               {"threads, about", threads * thread_bytes + files * file_bytes},
               {"code of the program and its libraries, as pages of files, about", code_bytes}};
  std::erase_if(out.items, [](const MemoryItem& item) { return item.bytes == 0; });
  for (const MemoryItem& item : out.items) out.peak += item.bytes;
  // Importing looks at one weight at a time, before there is memory for ranks.
  out.peak = std::max(out.peak, out.peak - ranks - beside + largest);
  return out;
}

}  // namespace epl
