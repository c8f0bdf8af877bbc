// When each value is in memory, and which values share a location. Lifetimes are ranges of instructions, in the order
// in which a rank first comes by them. Where a block is called again or the calls of several blocks come between each
// other's, that order is not time, so that
//
// - what comes from before a loop of one block is read by every iteration: it lives to the end of the loop;
// - of interleaved blocks, what is made and used in their calls (the activations of a pipeline's stage) each
//   micro-batch has for itself, and layout.cc knows the calls;
// - of several such blocks that use a value, the one that comes last in the program need not be called last;
// - what a send reads is left alone until the send has been waited for.
#include <algorithm>

#include "core/base/check.h"
#include "core/program/lowering.h"
#include "core/program/timeline.h"
#include "core/program/transfer.h"

namespace epl {
namespace {

using Space = Location::Space;

class Lifetimes {
 public:
  explicit Lifetimes(Lowering& lowering) : l_(lowering), graph_(lowering.graph), program_(lowering.program) {}

  void run() {
    find_loops();
    leaves_.assign(l_.root.size(), false);
    sends_.assign(l_.root.size(), {});
    uses_.assign(l_.root.size(), {});
    find_ranges();
    locate_updates();
    share_in_place();
  }

 private:
  const Instruction& instruction(int p) const { return program_.instructions[p]; }
  int size() const { return static_cast<int>(l_.operands.size()); }
  Value root(Value v) const { return l_.root[v]; }
  int& first(Value root) { return l_.first[root]; }
  int& last(Value root) { return l_.last[root]; }

  // Interleaved blocks are one loop; any other that is called several times is one by itself.
  void find_loops() {
    for (const Block& block : program_.blocks) {
      const bool interleaved = block_is_interleaved(block.id.kind);
      if (interleaved && !l_.loops.empty() && l_.loops.back().interleaved) {
        l_.loops.back().last = block.last;
      } else if (interleaved || std::ranges::count(program_.calls, block.id, &BlockCall::id) > 1) {
        l_.loops.push_back({.first = block.first, .last = block.last, .interleaved = interleaved});
      }
    }
  }

  void find_ranges() {
    for (int p = 0; p < size(); ++p) {
      for (Value v : l_.operands[p].outputs) {
        if (v) first(root(v)) = last(root(v)) = p;
      }
      for (Value v : l_.operands[p].inputs) {
        if (v) use(root(v), p);
      }
    }
    // What decides whether the step is applied, an integer, is looked at again right before the state changes.
    const int commit = program_.commit_begin;
    for (const Graph::Output& output : graph_.outputs) {
      const Value r = root(output.value);
      const bool before = first(r) >= 0 && first(r) < commit;
      const bool decides = graph_.type(output.value) == TensorType{DType::i64, {}};
      if (before && decides && commit < size()) outlive(r, commit);
    }
  }

  void use(Value r, int p) {
    const Loop* loop = l_.loop_of(p);
    const Loop* from = first(r) >= 0 ? l_.loop_of(first(r)) : nullptr;
    const bool sent = instruction(p).transfer && instruction(p).transfer->sends;
    if (sent && first(r) >= 0) sends_[r].push_back(p);
    // Every iteration reads it, or what reads it is waited for by the next iteration.
    const bool every_iteration = loop && !loop->interleaved && (loop != from || sent);
    outlive(r, every_iteration ? loop->last - 1 : p);
  }

  // Used at `p`, which may be after the loop that gives it.
  void outlive(Value r, int p) {
    last(r) = std::max(last(r), p);
    note_use(r, p);
    const Loop* from = first(r) >= 0 ? l_.loop_of(first(r)) : nullptr;
    if (from && p >= from->last) leaves_[r] = true;
  }

  int block(int p) const {
    const auto within = [p](const Block& b) { return p >= b.first && p < b.last; };
    return static_cast<int>(std::ranges::find_if(program_.blocks, within) - program_.blocks.begin());
  }

  void note_use(Value r, int p) {
    const Loop* loop = l_.loop_of(p);
    if (!loop || !loop->interleaved) return;
    std::vector<int>& uses = uses_[r];
    const auto known = std::ranges::find(uses, block(p), [&](int use) { return block(use); });
    if (known == uses.end()) return uses.push_back(p);
    *known = std::max(*known, p);
  }

  // Whether no use of a value comes after that at `p`, for any micro-batch.
  bool last_of_all(Value r, int p, const Timeline& timeline) const {
    const Loop* loop = l_.loop_of(p);
    return std::ranges::all_of(uses_[r], [&](int use) {
      if (block(use) == block(p) || !loop || !loop->interleaved) return use <= p;
      for (int64_t m = 0; m < program_.micro_batches(); ++m) {
        if (timeline.at(use, m) > timeline.at(p, m)) return false;
      }
      return true;
    });
  }

  // Each micro-batch has its own: made in interleaved blocks, and used there alone.
  bool each(Value r) {
    const Loop* loop = l_.loop_of(first(r));
    return loop && loop->interleaved && !leaves_[r];
  }

  // New state is written in place where its producer may, else copied at the very end.
  void locate_updates() {
    for (const Graph::Update& update : graph_.updates) {
      const Value next = root(update.next), state = root(update.state);
      if (next != state && !write_state_in_place(next, state)) l_.copies.push_back(update);
    }
    for (const Graph::Update& update : l_.copies) {
      Instruction& in = l_.append(&transfer_named("copy"), graph_.value(update.state).name);
      in.bytes = graph_.type(update.state).bytes();
      in.query->input_types = in.query->output_types = {graph_.type(update.state)};
      in.query->input_present = in.query->output_present = {true};
      l_.operands.back() = {{update.next}, {update.state}};
      program_.blocks.back().last = size();
      if (first(root(update.next)) >= 0) outlive(root(update.next), size() - 1);
      last(root(update.next)) = std::max(last(root(update.next)), size() - 1);
    }
  }

  bool write_state_in_place(Value next, Value state) {
    const int p = first(next);
    if (p < program_.commit_begin || p < 0 || last(state) > p || location(next).space != Space::none) return false;
    const Instruction& in = instruction(p);
    const auto& [inputs, outputs] = l_.operands[p];
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o] != next) continue;
      if (in.transfer && in.transfer->evicts && l_.memory[next] == location(state).memory) {
        l_.location[next] = location(state);
        return true;
      }
      if (in.transfer && (!in.transfer->gathers || !gather_in_place(inputs[o], state, axis_of(in)))) return false;
      if (in.transfer) {
        l_.location[next] = location(state);
        return true;
      }
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] && root(inputs[i]) == state && in.prepared.may_alias(static_cast<int>(i), static_cast<int>(o))) {
          l_.location[next] = location(state);
          return true;
        }
      }
    }
    return false;
  }

  // New state that ranks have made in shards: each where the shard of the old one was, if its producer may write there
  // and nobody reads the old one any more.
  bool gather_in_place(Value shard, Value state, int axis) {
    const Value made = root(shard);
    const int p = first(made);
    if (p < program_.commit_begin || made != shard || !in_arena(made) || last(state) > p) return false;
    const Instruction& in = instruction(p);
    if (in.transfer) return false;
    const auto& [inputs, outputs] = l_.operands[p];
    const Lowering::ShardOffset own{axis, graph_.type(shard).bytes()};
    if (own.stride * ranks_along(axis) != graph_.type(state).bytes()) return false;
    const auto o = std::ranges::find(outputs, shard) - outputs.begin();
    const auto reads_all = [&](Value v) { return v && root(v) == state && l_.shard_offset[v] != own; };
    if (std::ranges::any_of(inputs, reads_all)) return false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i] || root(inputs[i]) != state || !in.prepared.may_alias(static_cast<int>(i), static_cast<int>(o)))
        continue;
      l_.location[made] = location(state);
      l_.shard_offset[made] = own;
      return true;
    }
    return false;
  }

  int axis_of(const Instruction& in) const { return program_.mesh.find(program_.groups[in.group].axis); }
  int64_t ranks_along(int axis) const { return program_.mesh.axes[axis].size; }

  const Location& location(Value r) const { return l_.location[r]; }
  bool in_arena(Value r) const { return location(r).space == Space::none; }

  void share_in_place() {
    const Timeline timeline(program_);
    for (int p = 0; p < size(); ++p) {
      const auto& [inputs, outputs] = l_.operands[p];
      std::vector<bool> taken(inputs.size(), false);
      for (size_t o = 0; o < outputs.size(); ++o) {
        const Value out = outputs[o];
        if (!out || !in_arena(out) || l_.range[out] >= 0) continue;
        for (size_t i = 0; i < inputs.size() && l_.range[out] < 0; ++i) {
          if (inputs[i] && !taken[i] && may_take(p, static_cast<int>(i), static_cast<int>(o), timeline)) {
            take_over(root(inputs[i]), out);
            taken[i] = true;
          }
        }
        if (l_.range[out] < 0) add_range(out);
      }
      add_workspace(p);
    }
  }

  // Whether output `o` of an instruction may be written over its input `i`. A shard of a sum is not written over the
  // rank's segment of it: it may wait for the update, and the memory of the full sum would wait with it.
  bool may_take(int p, int i, int o, const Timeline& timeline) {
    const Instruction& in = instruction(p);
    if (in.transfer && !(in.transfer->in_place && i == o)) return false;
    const auto& [inputs, outputs] = l_.operands[p];
    const Value source = root(inputs[i]), out = outputs[o];
    const bool dies = in_arena(source) && last(source) == p && first(source) < p && sends_[source].empty() &&
                      each(source) == each(out) && last_of_all(source, p, timeline);
    const bool once = std::ranges::count_if(inputs, [&](Value v) { return v && root(v) == source; }) == 1;
    if (!dies || !once || graph_.type(out).bytes() != graph_.type(source).bytes()) return false;
    const Loop *from = l_.loop_of(first(source)), *loop = l_.loop_of(p);
    if (from != loop && (loop || !(from->interleaved || in.transfer))) return false;
    return in.transfer || in.prepared.may_alias(i, o);
  }

  void take_over(Value source, Value out) {
    l_.range[out] = l_.range[source];
    l_.shard_offset[out] = l_.shard_offset[source];
    LiveRange& range = l_.ranges[l_.range[source]];
    range.last = std::max(range.last, last(out));
    const std::vector<int>& sends = sends_[out];
    range.sends.insert(range.sends.end(), sends.begin(), sends.end());
    const std::vector<int>& uses = uses_[out];
    range.uses.insert(range.uses.end(), uses.begin(), uses.end());
  }

  void add_range(Value r) {
    l_.range[r] = std::ssize(l_.ranges);
    LiveRange range{.bytes = graph_.type(r).bytes(), .first = first(r), .last = last(r), .each = each(r)};
    const TransferRow* transfer = instruction(first(r)).transfer;
    range.late = transfer && transfer->at_last_iteration && !range.each;
    range.sends = sends_[r];
    range.uses = uses_[r];
    range.memory = l_.memory[r];
    l_.ranges.push_back(range);
  }

  void add_workspace(int p) {
    Instruction& in = program_.instructions[p];
    LiveRange range{.bytes = in.workspace_bytes, .first = p, .last = p};
    const Loop* loop = l_.loop_of(p);
    if (in.transfer && in.transfer->held_bytes) {
      // Alive from iteration to iteration; the kernel's own workspace stands before it.
      in.workspace_bytes = aligned_bytes(in.workspace_bytes);
      range.bytes = in.workspace_bytes + in.transfer->held_bytes(in, program_.micro_batches());
      if (!loop->interleaved) {
        range.first = loop->first;
        range.last = loop->last - 1;
      }
    } else {
      range.each = loop && loop->interleaved;
    }
    l_.workspace.push_back(range.bytes > 0 ? static_cast<int>(l_.ranges.size()) : -1);
    if (range.bytes > 0) l_.ranges.push_back(range);
  }

  Lowering& l_;
  const Graph& graph_;
  Program& program_;
  ByValue<bool> leaves_;             // of a root: it is used after the loop that gives it
  ByValue<std::vector<int>> sends_;  // of a root: that read it
  ByValue<std::vector<int>> uses_;   // of a root: LiveRange::uses
};

}  // namespace

void find_lifetimes(Lowering& lowering) { Lifetimes(lowering).run(); }

}  // namespace epl
