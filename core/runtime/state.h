// The tensors that live between steps: parameters, buffers, optimizer state and kept gradients, by name. Each rank has
// all of a value or a shard of it. Values are read in full, as shards, or as this process has them. How the state is
// saved and loaded is in core/runtime/session_checkpoint.h. Over processes, all read at the same time what some process
// has none of, or only shards of (has_full). Thread safety: one caller at a time. What reads `gate` may run beside
// steps.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/checkpoint.h"
#include "core/runtime/kept_gradients.h"
#include "core/runtime/state_gate.h"
#include "core/runtime/world.h"

namespace epl {

// A parameter that the plan does not train is frozen.
StateKind state_kind(const CompiledPlan& plan, const StateSlot& slot);
// Whether a value of this type becomes one of the slot by converting its elements: state of an optimizer, which a
// session may store in another floating type than the one that it comes from.
bool converts(const CompiledPlan& plan, const StateSlot& slot, const TensorType& from);
// Sorted.
std::vector<std::string> state_names(const CompiledPlan& plan, StateKind kind);

class State {
 public:
  State(const Host& host, std::shared_ptr<const CompiledPlan> plan, World& world, const HostState& host_state);
  State(const State&) = delete;

  // Who has what of one name.
  struct Held {
    const StateSlot* slot = nullptr;
    const Mesh* mesh = nullptr;
    std::vector<std::vector<int>> holders;  // the ranks with each shard, ascending
    bool everywhere = false;                // each process has all shards
  };
  Result<Held> held(std::string_view name) const;
  // Whether each process has all of it, so that no other one takes part in `get` and `view`.
  bool has_full(std::string_view name) const;
  // Replicated on each process.
  Result<Tensor> get(std::string_view name);
  // The same without a copy where that is possible: for those who are done with it before the session's next call.
  Result<Tensor> view(std::string_view name);
  // A value of which this process has everything, where it lies on its ranks: in memory, or read when it is asked for.
  // Valid until the session's next call. An error where the last step has changed it by half.
  Result<Tensor> in_place(std::string_view name) const;
  // What this process has of it, as boxes of the value, where they lie, for as long. The ranks that hold one shard take
  // turns, so that over all processes each shard is given once.
  struct Shard {
    int rank = 0;
    std::vector<PositionedBox> boxes;
  };
  Result<std::vector<Shard>> shards(std::string_view name, size_t number) const;
  // Of the slot's type, or of one that `converts`.
  Status set(std::string_view name, const Tensor& given);
  // The same from shards of the value, all of one type, of which each rank reads what it holds. If that fails, the
  // state is torn. It is what a checkpoint sets, and not told to other processes.
  Status set_shards(std::string_view name, const std::vector<PositionedBox>& given);
  // The same, but a gradient that is not finite is refused: an update takes it as it is.
  Status set_checked(std::string_view name, const Tensor& value);
  // Of the trained parameters, in the order of their names.
  Result<uint64_t> hash();

  // False after a step failed halfway through changing the state: restore a checkpoint and call `restored`.
  bool healthy() const { return healthy_; }
  void restored();
  // Says that the state is no longer of one step: a checkpoint that could not be read to its end.
  void torn() { healthy_ = consistent_here_ = false; }
  // A call that was to change the state has failed: this process may have changed it, or another one may.
  void note_failure(bool here, bool elsewhere);
  // Whoever changes the state other than by a step and `set` does it in the life of a StateGate::Change.
  StateGate& gate() { return gate_; }
  KeptGradients& gradients() { return gradients_; }
  // The gradients that a batch has in which nothing counts.
  void clear_gradients();

  // That all processes have the same model's file, before anything is trained.
  Status compare_weights();
  // Ranks that hold the same shard compare what they have, by hashes: none of it moves. Copies that are not the same
  // are an error that names the value and the rank, and the state is no longer `healthy`.
  Status compare_copies();
  // The same before a step, every now and then, so that a step that was made is never an error for this.
  Status compare_if_due(StepPhase phase, const Stop& stop);
  // Of a world that has lost a process: the first rank of the first one left that has all of the state by itself; -1:
  // there is none. All that are left know the same one.
  int keeper() const;

 private:
  struct Copies;
  Result<std::vector<std::string>> hashes_of_weights();
  Status take_weights(const std::vector<std::string>& names);
  Status find_copies();
  Result<int64_t> hash_of_copy(int rank, const std::string& name) const;
  Status who_differs(const std::string& name, const std::vector<int>& holders);

  const Host host_;
  const std::shared_ptr<const CompiledPlan> plan_;
  World& world_;
  const HostState& host_state_;
  StateGate gate_;
  KeptGradients gradients_;
  bool healthy_ = true;
  bool consistent_here_ = true;           // the state of this process is of one step, whatever the others have
  std::shared_ptr<const Copies> copies_;  // null: not looked for yet
  int64_t compared_step_ = 0;             // before which copies were compared last
  int compared_rejoins_ = 0;              // after which they were compared last
};

}  // namespace epl
