// Where and when instructions run: a stream for each, and between streams the fewest events that keep every byte right.
//
// A device says how many kinds of stream it can use (Device::stream_kinds). All of them have the first stream, which
// computes, and one for each peer and channel that a rank sends over, so that what one peer takes late holds up nothing
// for another. With more kinds there is one for each group of ranks, one that copies in and one that copies out. What
// goes to another memory and back may have two of its own without more kinds (Device::moves_beside).
//
// Two instructions of different streams need an order where both touch one byte and one of them writes it. The calls of
// a step are gone through in the order in which they are issued. Each stream knows the last run of every stream that is
// over when its own next run begins: what it has waited for, and all that those had waited for. So a wait is written
// only where nothing before it says the same, and only what is waited for records an event.
//
// With one kind of stream, a send waits for all that was issued before it, and so does what goes to another memory and
// back. On a device that carries commands out as they are issued they do so anyway, and a simulation of that device
// then sends and copies when the device does. Where the host waits before the state changes, the simulation waits for
// copies.
#include <algorithm>
#include <functional>
#include <map>
#include <ranges>
#include <utility>

#include "core/backend/device.h"
#include "core/base/check.h"
#include "core/program/lowering.h"
#include "core/program/transfer.h"

namespace epl {
namespace {

using Space = Location::Space;

// What a device can use beside the stream that computes: the number of kinds from which on it has them.
constexpr int with_groups = 2, with_copies_in = 3, with_copies_out = 4;
// Keys of streams that are no groups.
constexpr int computes = -1, copies_in = -2, copies_out = -3;

int key_of(const Lowering& lowering, int p, int kinds) {
  const Instruction& in = lowering.program.instructions[p];
  if (!in.transfer) return computes;
  if (in.group >= 0 && (in.transfer->sends || kinds >= with_groups)) return in.group;
  const bool beside = lowering.options.device && lowering.options.device->moves_beside();
  if (in.transfer->evicts && beside) return copies_out;
  if (in.transfer->fetches && beside) return copies_in;
  if (in.port >= 0 || in.transfer->evicts) return kinds >= with_copies_out ? copies_out : computes;
  if (in.transfer->fetches) return kinds >= with_copies_in ? copies_in : computes;
  if (!in.transfer->from_caller || kinds < with_copies_in) return computes;
  const Value source = lowering.operands[p].inputs.at(0);
  return lowering.location[lowering.root[source]].space == Space::input ? copies_in : computes;
}

// The calls that wait for a send, as the plan says it: lifetimes are laid out by that.
void take_wait(Program& program, const SendWait& wait) {
  const BlockCall& call = program.calls[wait.sent];
  const Block& block = program.blocks[program.find(call.id())];
  for (int p = block.first; p < block.last; ++p) {
    const Instruction& in = program.instructions[p];
    if (in.records < 0) continue;
    const ProgramGroup& group = program.groups[in.group];
    if (group.virtual_device == wait.to && group.channel == wait.channel)
      program.waits[wait.call].push_back({.event = in.records + static_cast<int>(call.micro_batch)});
  }
}

// One run of an instruction. -1: the host's numbers, which are there before the first.
struct Run {
  int instruction = -1;
  int64_t micro_batch = 0;
};

// What a stream knows to be over: of each stream the number of its last run that is, or -1.
using Known = std::vector<int>;

class StreamOrder {
 public:
  StreamOrder(Program& program, int kinds)
      : program_(program),
        streams_(program_.streams),
        copies_(streams_, false),
        runs_(streams_),
        over_(streams_),
        known_(streams_, Known(streams_, -1)),
        at_commit_(streams_) {
    for (const Instruction& in : program_.instructions) {
      if (in.stream != 0 && !(in.transfer && in.transfer->sends)) copies_[in.stream] = true;
    }
    only_sends_ = std::ranges::none_of(copies_, std::identity());
    as_issued_ = only_sends_ || kinds < with_groups;
    for (const ProgramMemory& memory : program_.memories) {
      bases_[memory.kind] = numbers_;
      arena_bytes_[memory.kind] = memory.arena_bytes;
      numbers_ += memory.bytes();
    }
  }

  void run() {
    find_shared();
    find_borders();
    write_numbers();
    for (int c = 0; c < std::ssize(program_.calls); ++c) {
      for (const CallWait& wait : program_.waits[c]) wait_for_send(wait.event);
      const Block& block = program_.blocks[program_.find(program_.calls[c].id())];
      for (int p = block.first; p < block.last; ++p) visit(c, p);
    }
    give_events();
    write_waits();
    keep_poison_off();
  }

 private:
  struct Bytes {
    int64_t begin = 0, end = 0;
  };
  struct Edge {
    int call, instruction;
    Run from;
  };

  // All memory that a step writes, one space behind the other.
  Bytes bytes_of(const Location& at, int64_t bytes, int64_t micro_batch) const {
    if (at.space != Space::arena && at.space != Space::state && at.space != Space::scalar) return {};
    const int64_t base = at.space == Space::scalar  ? numbers_
                         : at.space == Space::arena ? bases_[at.memory]
                                                    : bases_[at.memory] + arena_bytes_[at.memory];
    const int64_t begin = base + program_.offset_of(at, micro_batch);
    // Which shard it is depends on the rank, and ranks have one program.
    const int64_t all = at.axis < 0 ? bytes : at.stride * program_.mesh.axes[at.axis].size;
    return {begin, begin + std::max(bytes, all)};
  }

  // Calls f(bytes, writes) for all that a run touches.
  template <class F> void each_access(int p, int64_t micro_batch, const F& f) const {
    const Instruction& in = program_.instructions[p];
    const auto touch = [&](const Location& at, int64_t bytes, bool writes) {
      const Bytes range = bytes_of(at, bytes, micro_batch);
      if (range.end > range.begin) f(range, writes);
    };
    for (int i = 0; i < std::ssize(in.inputs); ++i) {
      if (in.query->has(i)) touch(in.inputs[i], in.query->in(i).bytes(), false);
    }
    // Until its last iteration others may lie where the result will be.
    const bool unfinished =
        in.transfer && in.transfer->at_last_iteration && micro_batch + 1 != program_.micro_batches();
    for (int o = 0; !unfinished && o < std::ssize(in.outputs); ++o)
      touch(in.outputs[o], in.query->out(o).bytes(), true);
    int64_t workspace = in.workspace_bytes;
    if (in.transfer && in.transfer->held_bytes) workspace += in.transfer->held_bytes(in, program_.micro_batches());
    touch(in.workspace, workspace, true);
    if (decides() && p > program_.commit_begin)
      touch({.space = Space::scalar, .offset = program_.decided_at}, sizeof(int64_t), false);
  }

  // The device does, by an instruction that stands where the state begins to change.
  bool decides() const { return program_.decided_at >= 0 && program_.commit_begin < std::ssize(program_.instructions); }

  template <class F> void each_run(const F& f) const {
    for (const BlockCall& call : program_.calls) {
      const Block& block = program_.blocks[program_.find(call.id())];
      for (int p = block.first; p < block.last; ++p) f(p, call.micro_batch);
    }
  }

  // What another stream than the first touches: only there an order may be missing.
  void find_shared() {
    each_run([&](int p, int64_t micro_batch) {
      if (program_.instructions[p].stream == 0) return;
      each_access(p, micro_batch, [&](Bytes range, bool) { shared_.push_back(range); });
    });
    std::ranges::sort(shared_, {}, &Bytes::begin);
    size_t last = 0;
    for (const Bytes& range : shared_) {
      if (range.begin > shared_[last].end) shared_[++last] = range;
      shared_[last].end = std::max(shared_[last].end, range.end);
    }
    if (!shared_.empty()) shared_.resize(last + 1);
  }

  bool is_shared(const Bytes& range) const {
    const auto behind = std::ranges::upper_bound(shared_, range.begin, {}, &Bytes::end);
    return behind != shared_.end() && behind->begin < range.end;
  }

  // Where ranges begin and end: what lies between two borders is touched as one.
  void find_borders() {
    const auto add = [&](const Bytes& range) { borders_.insert(borders_.end(), {range.begin, range.end}); };
    each_run([&](int p, int64_t micro_batch) {
      each_access(p, micro_batch, [&](const Bytes& range, bool) {
        if (is_shared(range)) add(range);
      });
    });
    if (is_shared(numbers())) add(numbers());
    std::ranges::sort(borders_);
    const auto doubles = std::ranges::unique(borders_);
    borders_.erase(doubles.begin(), doubles.end());
    writers_.assign(borders_.size(), {-1, -1});
    readers_.assign(borders_.size() * static_cast<size_t>(streams_), -1);
  }

  Bytes numbers() const { return {numbers_, numbers_ + program_.scalar_bytes}; }

  // The first run of the first stream.
  void write_numbers() {
    if (!is_shared(numbers())) return;
    Known none(streams_, -1);
    touch(numbers(), true, 0, none);
    end_run(0, {});
  }

  int& reader(size_t segment, int stream) { return readers_[segment * static_cast<size_t>(streams_) + stream]; }

  // The next run of `stream` touches these bytes: it needs what has written them and, to write them, what reads them.
  void touch(const Bytes& range, bool writes, int stream, Known& needed) {
    const auto number = static_cast<int>(runs_[stream].size());
    const auto need = [&](int of, int run) {
      if (of >= 0 && of != stream) needed[of] = std::max(needed[of], run);
    };
    auto segment = static_cast<size_t>(std::ranges::lower_bound(borders_, range.begin) - borders_.begin());
    for (; borders_[segment] < range.end; ++segment) {
      need(writers_[segment].first, writers_[segment].second);
      if (!writes) {
        reader(segment, stream) = number;
        continue;
      }
      for (int t = 0; t < streams_; ++t) need(t, std::exchange(reader(segment, t), -1));
      writers_[segment] = {stream, number};
    }
  }

  void visit(int call, int p) {
    const int64_t micro_batch = program_.calls[call].micro_batch;
    if (p == program_.commit_begin && !decides()) wait_as_host();
    const int stream = program_.instructions[p].stream;
    Known needed(streams_, -1);
    bool matters = stream != 0 || as_issued_;
    if (!at_commit_[stream].empty()) needed = std::exchange(at_commit_[stream], {});
    if (as_issued_ && stream != 0) needed[0] = static_cast<int>(runs_[0].size()) - 1;
    if (p == program_.commit_begin && decides()) {  // what has failed by then is not applied
      matters = true;
      for (int t = 0; t < streams_; ++t) needed[t] = static_cast<int>(runs_[t].size()) - 1;
    }
    each_access(p, micro_batch, [&](const Bytes& range, bool writes) {
      if (!is_shared(range)) return;
      matters = true;
      touch(range, writes, stream, needed);
    });
    if (!matters) return;
    wait(call, p, needed);
    const Instruction& in = program_.instructions[p];
    if (in.records >= 0) sent_[event_of(p, micro_batch)] = {stream, static_cast<int>(runs_[stream].size())};
    end_run(stream, {p, micro_batch});
  }

  // There the host waits for all streams, to decide with the other ranks whether the state changes. So that a
  // simulation waits too, streams that compute or copy say so where they go on.
  void wait_as_host() {
    const bool said = as_issued_ && !only_sends_;
    Known issued(streams_, -1);
    for (int t = 0; t < streams_; ++t) issued[t] = static_cast<int>(runs_[t].size()) - 1;
    for (int stream = 0; stream < streams_; ++stream) {
      for (int t = 0; t < streams_; ++t) {
        if (!said || sends(stream) || sends(t)) known_[stream][t] = issued[t];
      }
      if (said && !sends(stream)) at_commit_[stream] = issued;
    }
  }
  bool sends(int stream) const { return stream != 0 && !copies_[stream]; }

  const Known& over(int stream, int run) const { return over_[stream][run]; }

  // Waits for what is needed and not known to be over, but not for what another wait says as well.
  void wait(int call, int p, Known& needed) {
    const int stream = program_.instructions[p].stream;
    const auto is_needed = [&](int t) { return needed[t] > known_[stream][t]; };
    for (int t = 0; t < streams_; ++t) {
      const auto says = [&](int u) { return u != t && is_needed(u) && over(u, needed[u])[t] >= needed[t]; };
      if (is_needed(t) && std::ranges::any_of(std::views::iota(0, streams_), says)) needed[t] = -1;
    }
    for (int t = 0; t < streams_; ++t) {
      if (!is_needed(t)) continue;
      edges_.push_back({call, p, runs_[t][needed[t]]});
      know(stream, over(t, needed[t]));
    }
  }

  void know(int stream, const Known& more) {
    for (int t = 0; t < streams_; ++t) known_[stream][t] = std::max(known_[stream][t], more[t]);
  }

  void end_run(int stream, const Run& run) {
    known_[stream][stream] = static_cast<int>(runs_[stream].size());
    runs_[stream].push_back(run);
    over_[stream].push_back(known_[stream]);
  }

  void wait_for_send(int event) {
    const auto sent = sent_.find(event);
    if (sent != sent_.end()) know(0, over(sent->second.first, sent->second.second));
  }

  int event_of(int p, int64_t micro_batch) const {
    return program_.instructions[p].records + static_cast<int>(program_.loops(p) ? micro_batch : 0);
  }
  int event_of(const Run& run) const {
    return run.instruction < 0 ? program_.numbers_event : event_of(run.instruction, run.micro_batch);
  }

  void give_events() {
    for (const Edge& edge : edges_) {
      const int p = edge.from.instruction;
      int& records = p < 0 ? program_.numbers_event : program_.instructions[p].records;
      if (records >= 0) continue;
      records = program_.events;
      program_.events += static_cast<int>(p >= 0 && program_.loops(p) ? program_.micro_batches() : 1);
    }
  }

  // Whether it is a wait for the same micro-batch, or for what there is once.
  bool is_of_iteration(const Edge& edge) const {
    const int p = edge.from.instruction;
    return p < 0 || !program_.loops(p) || edge.from.micro_batch == program_.calls[edge.call].micro_batch;
  }

  // What every call of a block waits for stands with the instruction, the rest with the call.
  void write_waits() {
    std::map<BlockId, int64_t> of_block;
    for (const BlockCall& call : program_.calls) ++of_block[call.id()];
    std::map<std::pair<int, int>, int64_t> calls;  // by who waits, and for whom
    for (const Edge& edge : edges_) calls[{edge.instruction, edge.from.instruction}] += is_of_iteration(edge);
    for (const Edge& edge : edges_) {
      const int64_t all = of_block[program_.calls[edge.call].id()];
      if (calls[{edge.instruction, edge.from.instruction}] != all || !is_of_iteration(edge)) {
        program_.waits[edge.call].push_back({.event = event_of(edge.from), .instruction = edge.instruction});
        continue;
      }
      const int p = edge.from.instruction;
      const bool each = p >= 0 && program_.loops(p);
      const Wait wait{.event = p < 0 ? program_.numbers_event : program_.instructions[p].records, .each = each};
      std::vector<Wait>& waits = program_.instructions[edge.instruction].waits;
      if (std::ranges::find(waits, wait) == waits.end()) waits.push_back(wait);
    }
    for (std::vector<CallWait>& waits : program_.waits) std::ranges::stable_sort(waits, {}, &CallWait::instruction);
  }

  // What is dead is filled on the first stream, which then knows of no other. Memory that sends read has been waited
  // for by then.
  void keep_poison_off() {
    if (only_sends_) return;
    for (Instruction& in : program_.instructions) {
      for (Instruction::Release& dead : in.releases) {
        for (int64_t m = 0; m < program_.micro_batches(); ++m)
          dead.sent = dead.sent || is_shared(bytes_of(dead.at, dead.bytes, m));
      }
    }
  }

  Program& program_;
  const int streams_;
  std::vector<bool> copies_;  // by stream: it does not only send
  bool only_sends_ = false, as_issued_ = false;
  MemoryBytes bases_, arena_bytes_;  // state stands behind the arena
  int64_t numbers_ = 0;              // the scalars stand behind all memories
  std::vector<Bytes> shared_;        // ascending, apart from each other
  std::vector<int64_t> borders_;
  std::vector<std::pair<int, int>> writers_;  // by segment: the stream and the number of the last run that wrote it
  std::vector<int> readers_;                  // by segment and stream: the last run that has read it since
  std::vector<std::vector<Run>> runs_;        // by stream
  std::vector<std::vector<Known>> over_;      // by stream and run: what is over when it is
  std::vector<Known> known_;                  // by stream
  std::vector<Known> at_commit_;              // by stream: what its next run waits for as the host does; empty: nothing
  std::map<int, std::pair<int, int>> sent_;   // by event: the stream and the number of the run that records it
  std::vector<Edge> edges_;
};

}  // namespace

bool copies_fetches(const Device& device) { return device.moves_beside() || device.stream_kinds() >= with_copies_in; }

void give_streams(Lowering& lowering) {
  Program& program = lowering.program;
  const int kinds = lowering.options.device ? lowering.options.device->stream_kinds() : 1;
  std::vector<int> keys = {computes};
  for (int p = 0; p < std::ssize(program.instructions); ++p) {
    Instruction& in = program.instructions[p];
    const int key = key_of(lowering, p, kinds);
    const auto known = std::ranges::find(keys, key);
    in.stream = static_cast<int>(known - keys.begin());
    if (known == keys.end()) keys.push_back(key);
    if (!in.transfer || !in.transfer->sends) continue;
    in.records = program.events;
    program.events += static_cast<int>(program.loops(p) ? program.micro_batches() : 1);
  }
  program.streams = static_cast<int>(std::ssize(keys));
  program.waits.resize(program.calls.size());
  for (const SendWait& wait : lowering.local.waits) take_wait(program, wait);
}

void order_streams(Program& program, int kinds) {
  if (program.streams > 1) StreamOrder(program, kinds).run();
}

}  // namespace epl
