#include "core/compile/plan_memory.h"

#include <algorithm>

#include "core/program/link.h"

namespace epl {
namespace {

void take_largest(MemoryBytes& bytes, const MemoryBytes& others) {
  for (const MemoryKind memory : memory_kinds) bytes[memory] = std::max(bytes[memory], others[memory]);
}

}  // namespace

int64_t Entry::agreement_bytes(int virtual_device) const {
  const Program& program = programs[static_cast<size_t>(virtual_device)];
  const bool decides = std::ranges::any_of(
      program.outputs, [&](const ProgramPort& port) { return port.index == verdict_output && verdict_output >= 0; });
  return program.commits && !decides && program.decided_at < 0 ? static_cast<int64_t>(sizeof(int64_t)) : 0;
}

int64_t Entry::own_bytes(int virtual_device) const {
  const Program& program = programs[static_cast<size_t>(virtual_device)];
  return program.constant_bytes + program.scalar_bytes + agreement_bytes(virtual_device);
}

MemoryBytes PlanMemory::arenas(int virtual_device) const {
  MemoryBytes bytes;
  for (const Entry& entry : plan_.entries())
    take_largest(bytes, entry.programs[static_cast<size_t>(virtual_device)].arena_bytes());
  return bytes;
}

int64_t PlanMemory::peak(int virtual_device, MemoryKind memory) const {
  int64_t bytes = arenas(virtual_device)[memory] + plan_.state_of(virtual_device).bytes(memory);
  if (memory != MemoryKind::device) return bytes;
  for (const Entry& entry : plan_.entries()) bytes += entry.own_bytes(virtual_device);
  return bytes;
}

std::vector<const Program*> PlanMemory::predicting(int virtual_device) const {
  std::vector<const Program*> out;
  for (const Entry& entry : plan_.entries()) {
    if (entry.kind == EntryKind::predict) out.push_back(&entry.programs[static_cast<size_t>(virtual_device)]);
  }
  return out;
}

MemoryBytes PlanMemory::prediction_arenas(int virtual_device) const {
  MemoryBytes bytes;
  for (const Program* program : predicting(virtual_device)) take_largest(bytes, program->arena_bytes());
  return bytes;
}

MemoryBytes PlanMemory::prediction_state(int virtual_device) const {
  MemoryBytes bytes;
  for (const Program* program : predicting(virtual_device)) take_largest(bytes, state_end(*program));
  return bytes;
}

int64_t PlanMemory::prediction(int virtual_device) const {
  constexpr MemoryKind computes = MemoryKind::device;
  int64_t bytes = prediction_arenas(virtual_device)[computes] + prediction_state(virtual_device)[computes];
  for (const Program* program : predicting(virtual_device)) bytes += program->constant_bytes + program->scalar_bytes;
  return bytes;
}

int PlanMemory::fullest_class() const {
  int fullest = 0;
  for (int t = 1; t < plan_.virtual_devices(); ++t) {
    if (peak(t) > peak(fullest)) fullest = t;
  }
  return fullest;
}

std::vector<MemoryItem> PlanMemory::items() const {
  const int fullest = fullest_class();
  const auto of = [&](const Entry& entry) -> const Program& { return entry.programs[static_cast<size_t>(fullest)]; };
  int64_t parameters = 0, buffers = 0, gradients = 0;
  for (const StateSlot& slot : plan_.state_of(fullest).slots()) {
    if (slot.is_represented() || slot.memory != MemoryKind::device) continue;
    if (slot.kind == ValueKind::parameter) parameters += slot.local.bytes();
    if (slot.kind == ValueKind::buffer) buffers += slot.local.bytes();
    if (!gradient_of(plan_, slot.name).empty()) gradients += slot.local.bytes();
  }
  int64_t constants = 0, scalars = 0;
  for (const Entry& entry : plan_.entries()) {
    constants += of(entry).constant_bytes;
    scalars += of(entry).scalar_bytes + entry.agreement_bytes(fullest);
  }
  std::vector<MemoryItem> items = {
      {"parameters", parameters},
      {"buffers", buffers},
      {"optimizer state and padding", plan_.state_of(fullest).bytes() - parameters - buffers - gradients},
      {"constants", constants},
      {"host scalars", scalars},
      {"arena", arena()}};
  for (const Entry& entry : plan_.entries())
    items.push_back({cat("  of which ", entry.name(), " needs"), of(entry).memories[0].arena_bytes});
  for (const MemoryKind memory : memory_kinds) {
    const int64_t bytes = peak(fullest, memory);
    if (memory == MemoryKind::device || bytes == 0) continue;
    items.push_back({cat("beside these, in memory of the kind ", memory_kind_name(memory)), bytes});
    items.push_back({"  of which state", plan_.state_of(fullest).bytes(memory)});
    items.push_back({"  of which arena", arenas(fullest)[memory]});
  }
  if (gradients > 0) items.insert(items.begin() + 2, {"gradients that are kept", gradients});
  return items;
}

}  // namespace epl
