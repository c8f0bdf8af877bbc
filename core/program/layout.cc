// Addresses. Each range of memory has its time (core/program/timeline.h), and one that each micro-batch has for itself
// has as many times and offsets: everything is laid out together, as if no call were made twice.
#include <algorithm>
#include <map>

#include "core/base/check.h"
#include "core/program/lowering.h"
#include "core/program/timeline.h"

namespace epl {
namespace {

using Space = Location::Space;

class Layout {
 public:
  explicit Layout(Lowering& lowering) : l_(lowering), program_(lowering.program), timeline_(program_) {}

  void run() {
    find_waits();
    assign_addresses();
    write_locations();
    write_releases();
  }

 private:
  // When the rank waits for what its other streams have done.
  void find_waits() {
    waited_for_.assign(static_cast<size_t>(program_.events), timeline_.end());
    for (size_t c = program_.calls.size(); c-- > 0;) {
      for (const CallWait& wait : program_.waits[c]) waited_for_[wait.event] = timeline_.begin_of(c);
    }
  }

  // From when on nothing is done any more by a send for a micro-batch.
  int waited_for(int send, int64_t micro_batch) const {
    const int event = program_.instructions[send].records;
    return waited_for_[program_.loops(send) ? event + micro_batch : event];
  }

  int64_t copies(const LiveRange& live) const { return live.each ? program_.micro_batches() : 1; }

  int begin(const LiveRange& live, int64_t micro_batch) const {
    if (live.each) return timeline_.at(live.first, micro_batch);
    return live.late ? timeline_.last(live.first) : timeline_.first(live.first);
  }

  int end(const LiveRange& live, int64_t micro_batch) const {
    const auto last = [&](int p) { return live.each ? timeline_.at(p, micro_batch) : timeline_.last(p); };
    int end = last(live.last);
    for (int use : live.uses) end = std::max(end, last(use));
    for (int send : live.sends) {
      const Loop* loop = l_.loop_of(send);
      EPL_CHECK(live.each || !loop || !loop->interleaved || program_.micro_batches() == 1,
                "all micro-batches share what ", program_.instructions[send].name, " sends");
      end = std::max(end, waited_for(send, live.each ? micro_batch : program_.micro_batches() - 1) - 1);
    }
    return end;
  }

  void assign_addresses() {
    for (ProgramMemory& memory : program_.memories) assign_addresses(memory);
  }

  void assign_addresses(ProgramMemory& memory) {
    std::vector<Storage> storages;
    for (const LiveRange& live : l_.ranges) {
      if (live.memory != memory.kind) continue;
      for (int64_t m = 0; m < copies(live); ++m) storages.push_back({live.bytes, begin(live, m), end(live, m)});
    }
    // The lifetimes of several micro-batches in flight leave more gaps than those of one that goes forward and back.
    const bool interleaved = std::ranges::any_of(l_.loops, &Loop::interleaved);
    memory.arena_live_bytes =
        lay_out(storages, max_looks, interleaved ? max_search_looks : few_search_looks).largest_live;
    for (const Storage& s : storages) memory.arena_bytes = std::max(memory.arena_bytes, s.offset + s.bytes);
    auto next = storages.begin();
    for (LiveRange& live : l_.ranges) {
      if (live.memory != memory.kind) continue;
      std::vector<int64_t> offsets;
      for (int64_t m = 0; m < copies(live); ++m) offsets.push_back((next++)->offset);
      live.at = {.space = Space::arena, .memory = live.memory, .offset = offsets.front()};
      const bool same = std::ranges::all_of(offsets, [&](int64_t offset) { return offset == offsets.front(); });
      if (!same) live.at.offset_table = offset_table(offsets);
    }
  }

  int32_t offset_table(const std::vector<int64_t>& offsets) {
    const auto [known, is_new] = offset_table_of_.emplace(offsets, static_cast<int32_t>(program_.offset_tables.size()));
    if (is_new) program_.offset_tables.push_back(offsets);
    return known->second;
  }

  Location location(Value v) const {
    if (!v) return {};
    const Value root = l_.root[v];
    const bool in_arena = l_.location[root].space == Space::none;
    Location at = in_arena ? l_.ranges[l_.range[root]].at : l_.location[root];
    const Lowering::ShardOffset &own = l_.shard_offset[v], &of_root = l_.shard_offset[root];
    if (const Lowering::ShardOffset& offset = own ? own : of_root) {
      at.axis = offset.axis;
      at.stride = offset.stride;
    }
    return at;
  }

  void write_locations() {
    for (size_t p = 0; p < l_.operands.size(); ++p) {
      Instruction& in = program_.instructions[p];
      for (Value v : l_.operands[p].inputs) in.inputs.push_back(location(v));
      for (Value v : l_.operands[p].outputs) in.outputs.push_back(location(v));
      if (l_.workspace[p] >= 0) in.workspace = l_.ranges[l_.workspace[p]].at;
    }
    for (size_t port = 0; port < l_.local.outputs.size(); ++port) {
      const LocalPort& out = l_.local.outputs[port];
      const Value v = l_.graph.outputs[port].value;
      program_.outputs.push_back(
          {out.name, out.global_type, l_.graph.type(v), out.sharding, location(v), static_cast<int>(port)});
    }
  }

  // The use that comes last for every micro-batch; -1: which one it is depends on the micro-batch, and nobody notes
  // that the range is dead.
  int last_use(const LiveRange& live) const {
    std::vector<int> uses = live.uses;
    uses.push_back(live.last);
    const auto time = [&](int p, int64_t m) { return live.each ? timeline_.at(p, m) : timeline_.last(p); };
    for (int last : uses) {
      bool for_all = true;
      for (int64_t m = 0; m < copies(live); ++m)
        for_all = for_all && std::ranges::all_of(uses, [&](int use) { return time(use, m) <= time(last, m); });
      if (for_all) return last;
    }
    return -1;
  }

  void write_releases() {
    for (const LiveRange& live : l_.ranges) {
      const int last = last_use(live);
      if (last < 0 || live.memory != MemoryKind::device) continue;
      const Loop* loop = l_.loop_of(last);
      const bool all_iterations = loop && (loop->interleaved || (live.first <= loop->first && last == loop->last - 1));
      program_.instructions[last].releases.push_back({.at = live.at,
                                                      .bytes = live.bytes,
                                                      .last_iteration = all_iterations && !live.each,
                                                      .sent = !live.sends.empty()});
    }
  }

  Lowering& l_;
  Program& program_;
  const Timeline timeline_;
  std::vector<int> waited_for_;  // by event
  std::map<std::vector<int64_t>, int32_t> offset_table_of_;
};

}  // namespace

void lay_out_program(Lowering& lowering) { Layout(lowering).run(); }

}  // namespace epl
