// The last step before programs run: those of one plan get one state. Afterwards nothing in a program changes.
#pragma once

#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/program/program.h"

namespace epl {

// Where each name of the state lives on the ranks of one virtual device.
class StateLayout {
 public:
  const std::vector<StateSlot>& slots() const { return slots_; }
  const StateSlot* find(std::string_view name) const;
  int64_t bytes(MemoryKind memory = MemoryKind::device) const { return bytes_[memory]; }
  const MemoryBytes& of_each() const { return bytes_; }
  // The slots of several layouts in one list, whose offsets mean nothing.
  static StateLayout all(std::span<const StateLayout> layouts);

 private:
  friend Result<StateLayout> link(std::span<Program* const> programs);
  const StateSlot& slot(const StateSlot& wanted);

  std::vector<StateSlot> slots_;
  std::unordered_map<std::string, size_t> by_name_;
  MemoryBytes bytes_;
};

// Where the slots lie that a program reads or writes.
std::set<StateLocation> state_in_use(const Program& program);
// Where the bytes end that a linked program uses of the state in each memory; of the first one that was linked, nothing
// else lies before that.
MemoryBytes state_end(const Program& program);
// Slots of one name become one, those that the programs use first, in the order in which they name them, and the
// programs' locations point there.
// `internal`: two programs have shards of one name that differ.
Result<StateLayout> link(std::span<Program* const> programs);

}  // namespace epl
