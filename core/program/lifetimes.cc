// When each value is in memory, and which values share a place. Lifetimes are ranges of instructions, in the order in
// which a rank first comes by them. Inside one call that is their order in time; where the calls of several blocks come
// between each other's, or a block is called again, three things differ:
//
// - What comes from before a loop is read by every turn: it lives to the end of the loop.
// - What lives from one call to a later one of the same micro-batch (the activations of a pipeline's stage) has a slot
//   for each micro-batch that is in flight.
// - What a send reads may be read until the send is waited for, so nothing else is put there while the loop runs.
#include <algorithm>

#include "core/base/check.h"
#include "core/program/lowering.h"
#include "core/program/transfer.h"

namespace epl {
namespace {

using Space = Location::Space;

class Lifetimes {
 public:
  explicit Lifetimes(Lowering& lowering) : l_(lowering), graph_(lowering.graph), program_(lowering.program) {}

  void run() {
    find_loops();
    last_block_.assign(l_.root.size(), -1);
    kept_.assign(l_.root.size(), false);
    find_ranges();
    place_updates();
    share_in_place();
  }

 private:
  const Instruction& instruction(int p) const { return program_.instructions[static_cast<size_t>(p)]; }
  int size() const { return static_cast<int>(l_.operands.size()); }
  int root(Value v) const { return l_.root[static_cast<size_t>(v.index)]; }
  int& first(int root) { return l_.first[static_cast<size_t>(root)]; }
  int& last(int root) { return l_.last[static_cast<size_t>(root)]; }

  // A block that is called several times is a loop; blocks are one loop where values of a micro-batch go from one to
  // the other.
  void find_loops() {
    std::vector<int> calls, part_of;
    for (int b = 0; b < static_cast<int>(program_.blocks.size()); ++b) {
      const BlockKind kind = program_.blocks[static_cast<size_t>(b)].kind;
      calls.push_back(static_cast<int>(std::ranges::count(program_.calls, kind, &BlockCall::block)));
      part_of.push_back(b);
    }
    std::vector<int> made(l_.root.size(), -1);  // by root: the block, of what each turn makes
    for (int p = 0; p < size(); ++p) {
      const int block = l_.block_of(p);
      if (calls[static_cast<size_t>(block)] < 2) continue;
      const bool each_turn = !instruction(p).transfer || !instruction(p).transfer->at_last_turn;
      for (Value v : l_.operands[static_cast<size_t>(p)].outputs) {
        if (v && each_turn) made[static_cast<size_t>(root(v))] = block;
      }
      for (Value v : l_.operands[static_cast<size_t>(p)].inputs) {
        const int from = v ? made[static_cast<size_t>(root(v))] : -1;
        if (from < 0) continue;
        for (int b = from + 1; b <= block; ++b) part_of[static_cast<size_t>(b)] = part_of[static_cast<size_t>(from)];
      }
    }
    for (int b = 0; b < static_cast<int>(calls.size()); ++b) {
      const Block& block = program_.blocks[static_cast<size_t>(b)];
      if (part_of[static_cast<size_t>(b)] != b) {
        l_.loops.back().last = block.last;
        l_.loops.back().last_block = b;
      } else if (calls[static_cast<size_t>(b)] > 1) {
        l_.loops.push_back({.first = block.first, .last = block.last, .first_block = b, .last_block = b});
      }
    }
  }

  void find_ranges() {
    for (int p = 0; p < size(); ++p) {
      for (Value v : l_.operands[static_cast<size_t>(p)].outputs) {
        if (!v) continue;
        first(root(v)) = last(root(v)) = p;
        last_block_[static_cast<size_t>(root(v))] = l_.block_of(p);
      }
      for (Value v : l_.operands[static_cast<size_t>(p)].inputs) {
        if (v) use(root(v), p);
      }
    }
    // What decides whether the step is applied is looked at again right before the state changes.
    const int commit = program_.commit_begin;
    for (const Graph::Output& output : graph_.outputs) {
      const int r = root(output.value);
      const bool before = first(r) >= 0 && first(r) < commit;
      if (before && graph_.type(output.value).elements() == 1 && commit < size()) outlive(r, commit);
    }
  }

  void use(int r, int p) {
    const Loop* loop = l_.loop_of(p);
    const Loop* from = first(r) >= 0 ? l_.loop_of(first(r)) : nullptr;
    const bool sent = instruction(p).transfer && instruction(p).transfer->sends;
    if (sent && first(r) >= 0) {
      kept_[static_cast<size_t>(r)] = true;
      last(r) = std::max(last(r), loop ? loop->last - 1 : size() - 1);
    }
    if (loop && loop != from) {
      last(r) = std::max(last(r), loop->last - 1);
      return;
    }
    if (from && loop == from)
      last_block_[static_cast<size_t>(r)] = std::max(last_block_[static_cast<size_t>(r)], l_.block_of(p));
    outlive(r, p);
  }

  // Used at `p`, which may be after the loop that gives it: what the last turn gives is there from then on; anything
  // else, or where earlier blocks have calls to come, has its place while the loop runs.
  void outlive(int r, int p) {
    last(r) = std::max(last(r), p);
    const Loop* from = first(r) >= 0 ? l_.loop_of(first(r)) : nullptr;
    if (!from || from->single() || p < from->last) return;
    last_block_[static_cast<size_t>(r)] = -1;
    const Instruction& in = instruction(first(r));
    if (!in.transfer || !in.transfer->at_last_turn || !ends(first(r), *from)) first(r) = from->first;
  }

  // Whether no block of the loop before that of an instruction is called after its last turn.
  bool ends(int p, const Loop& loop) const {
    const auto& blocks = program_.blocks;
    for (size_t c = program_.calls.size(); c-- > 0;) {
      const BlockKind kind = program_.calls[c].block;
      if (kind == blocks[static_cast<size_t>(l_.block_of(p))].kind) return true;
      for (int b = loop.first_block; b < l_.block_of(p); ++b) {
        if (kind == blocks[static_cast<size_t>(b)].kind) return false;
      }
    }
    return true;
  }

  // New state is written in place where its producer may, else copied at the very end.
  void place_updates() {
    for (const Graph::Update& update : graph_.updates) {
      const int next = root(update.next), state = root(update.state);
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

  bool write_state_in_place(int next, int state) {
    const int p = first(next);
    if (p < program_.commit_begin || p < 0 || last(state) > p || place(next).space != Space::none) return false;
    const Instruction& in = instruction(p);
    if (in.transfer) return false;
    const auto& [inputs, outputs] = l_.operands[static_cast<size_t>(p)];
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].index != next) continue;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] && root(inputs[i]) == state && in.prepared.may_alias(static_cast<int>(i), static_cast<int>(o))) {
          l_.place[static_cast<size_t>(next)] = place(state);
          return true;
        }
      }
    }
    return false;
  }

  const Location& place(int r) const { return l_.place[static_cast<size_t>(r)]; }
  bool in_arena(int r) const { return place(r).space == Space::none; }

  void share_in_place() {
    for (int p = 0; p < size(); ++p) {
      const auto& [inputs, outputs] = l_.operands[static_cast<size_t>(p)];
      std::vector<bool> taken(inputs.size(), false);
      for (size_t o = 0; o < outputs.size(); ++o) {
        const int out = outputs[o] ? outputs[o].index : -1;
        if (out < 0 || !in_arena(out) || l_.range[static_cast<size_t>(out)] >= 0) continue;
        for (size_t i = 0; i < inputs.size() && l_.range[static_cast<size_t>(out)] < 0; ++i) {
          if (inputs[i] && !taken[i] && may_take(p, static_cast<int>(i), static_cast<int>(o))) {
            take_over(root(inputs[i]), out);
            taken[i] = true;
          }
        }
        if (l_.range[static_cast<size_t>(out)] < 0) add_range(out);
      }
      add_workspace(p);
    }
  }

  // Whether output `o` of an instruction may be written over its input `i`.
  bool may_take(int p, int i, int o) {
    const Instruction& in = instruction(p);
    if (in.transfer) return false;
    const auto& [inputs, outputs] = l_.operands[static_cast<size_t>(p)];
    const int source = root(inputs[static_cast<size_t>(i)]), out = outputs[static_cast<size_t>(o)].index;
    const bool dies = in_arena(source) && last(source) == p && first(source) < p &&
                      l_.loop_of(first(source)) == l_.loop_of(p) && !kept_[static_cast<size_t>(source)];
    const bool once = std::ranges::count_if(inputs, [&](Value v) { return v && root(v) == source; }) == 1;
    if (!dies || !once || graph_.type(Value{source}).bytes() != graph_.type(Value{out}).bytes()) return false;
    // In a loop of several blocks a range is of one call or goes from one block to another, never both.
    const Loop* loop = l_.loop_of(p);
    if (loop && !loop->single() && (leaves(out) || crosses(out) || crosses(source))) return false;
    return in.prepared.may_alias(i, o);
  }

  // Not bound to a micro-batch, or kept.
  bool leaves(int r) const { return kept_[static_cast<size_t>(r)] || last_block_[static_cast<size_t>(r)] < 0; }
  bool crosses(int r) { return !leaves(r) && last_block_[static_cast<size_t>(r)] != l_.block_of(first(r)); }

  void take_over(int source, int out) {
    l_.range[static_cast<size_t>(out)] = l_.range[static_cast<size_t>(source)];
    LiveRange& range = l_.ranges[static_cast<size_t>(l_.range[static_cast<size_t>(source)])];
    range.last = std::max(range.last, last(out));
    range.kept = range.kept || kept_[static_cast<size_t>(out)];
  }

  void add_range(int r) {
    l_.range[static_cast<size_t>(r)] = static_cast<int>(l_.ranges.size());
    LiveRange range{.bytes = graph_.type(Value{r}).bytes(), .first = first(r), .last = last(r)};
    range.kept = kept_[static_cast<size_t>(r)];
    const Loop* loop = l_.loop_of(first(r));
    if (loop && !loop->single() && last_block_[static_cast<size_t>(r)] >= 0) {
      range.first_block = l_.block_of(first(r));
      range.last_block = last_block_[static_cast<size_t>(r)];
    }
    l_.ranges.push_back(range);
  }

  void add_workspace(int p) {
    Instruction& in = program_.instructions[static_cast<size_t>(p)];
    LiveRange range{.bytes = in.workspace_bytes, .first = p, .last = p};
    const Loop* loop = l_.loop_of(p);
    if (in.transfer && in.transfer->held_bytes) {
      // Alive as long as the loop; the kernel's own workspace stands before it.
      in.workspace_bytes = aligned_bytes(in.workspace_bytes);
      range.bytes = in.workspace_bytes + in.transfer->held_bytes(in, program_.micro_batches());
      range.first = loop->first;
      range.last = loop->last - 1;
    } else if (loop && !loop->single()) {
      range.first_block = range.last_block = l_.block_of(p);
    }
    l_.workspace.push_back(range.bytes > 0 ? static_cast<int>(l_.ranges.size()) : -1);
    if (range.bytes > 0) l_.ranges.push_back(range);
  }

  Lowering& l_;
  const Graph& graph_;
  Program& program_;
  // By root: the last block that uses it in the loop that gives it; -1: it leaves the loop.
  std::vector<int> last_block_;
  std::vector<bool> kept_;  // by root: a send reads it
};

}  // namespace

void find_lifetimes(Lowering& lowering) { Lifetimes(lowering).run(); }

}  // namespace epl
