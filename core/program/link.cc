#include "core/program/link.h"

#include <algorithm>
#include <map>

#include "core/program/memory.h"

namespace epl {

const StateSlot* StateLayout::find(std::string_view name) const {
  const auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? nullptr : &slots_[it->second];
}

const StateSlot& StateLayout::slot(const StateSlot& wanted) {
  const auto [it, inserted] = by_name_.emplace(wanted.name, slots_.size());
  if (inserted) {
    const StateSlot* representative = wanted.is_represented() ? find(wanted.representative) : nullptr;
    const int64_t offset = representative ? representative->offset : bytes_[wanted.memory];
    slots_.push_back(wanted);
    slots_.back().offset = offset;
    if (!representative) bytes_[wanted.memory] += aligned_bytes(wanted.local.bytes());
  }
  return slots_[it->second];
}

StateLayout StateLayout::all(std::span<const StateLayout> layouts) {
  StateLayout joined;
  for (const StateLayout& layout : layouts) {
    for (const StateSlot& slot : layout.slots()) joined.slot(slot);
  }
  return joined;
}

std::set<StateLocation> state_in_use(const Program& program) {
  std::set<StateLocation> used;
  const auto use = [&](const Location& location) {
    if (location.space == Location::Space::state) used.insert({location.memory, location.offset});
  };
  for (const Instruction& in : program.instructions) {
    std::ranges::for_each(in.inputs, use);
    std::ranges::for_each(in.outputs, use);
  }
  for (const ProgramPort& port : program.outputs) use(port.location);
  return used;
}

// Where the bytes end that a program reads or writes of its state, which begins at 0.
MemoryBytes state_end(const Program& program) {
  const std::set<StateLocation> used = state_in_use(program);
  MemoryBytes end;
  for (const StateSlot& slot : program.state) {
    if (!used.contains(slot.location())) continue;
    end[slot.memory] = std::max(end[slot.memory], slot.offset + aligned_bytes(slot.local.bytes()));
  }
  return end;
}

Result<StateLayout> link(std::span<Program* const> programs) {
  StateLayout layout;
  // What somebody uses comes first, so that the state of the first program lies together.
  std::vector<std::set<StateLocation>> used;
  for (const Program* program : programs) {
    used.push_back(state_in_use(*program));
    for (const StateSlot& slot : program->state) {
      if (used.back().contains(slot.location())) layout.slot(slot);
    }
  }
  for (size_t p = 0; p < programs.size(); ++p) {
    Program* program = programs[p];
    std::map<StateLocation, int64_t> moved;  // from the program's own layout to the common one
    // Without what has turned out to be another virtual device's.
    for (ProgramMemory& memory : program->memories) memory.state_bytes = 0;
    for (StateSlot& slot : program->state) {
      if (!slot.is_represented()) program->memory(slot.memory).state_bytes += aligned_bytes(slot.local.bytes());
      const StateSlot& stored = layout.slot(slot);
      if (used[p].contains(slot.location()) &&
          (stored.local != slot.local || stored.memory != slot.memory || stored.sharding != slot.sharding ||
           stored.representative != slot.representative))
        return unsupported("entries of one plan would keep other shards of ", slot.name, ": ", stored.local.text(),
                           " and ", slot.local.text(), "; give all nodes that use it to one scope")
            .at(slot.name);
      const int64_t offset = stored.offset;
      moved[slot.location()] = offset;
      slot.offset = offset;
    }
    const auto move = [&](Location& location) {
      if (location.space == Location::Space::state) location.offset = moved.at({location.memory, location.offset});
    };
    for (Instruction& in : program->instructions) {
      std::ranges::for_each(in.inputs, move);
      std::ranges::for_each(in.outputs, move);
    }
    for (ProgramPort& port : program->outputs) move(port.location);
  }
  return layout;
}

}  // namespace epl
