#include "core/program/describe.h"

#include <algorithm>
#include <map>

#include "core/program/memory.h"
#include "core/program/transfer.h"

namespace epl {

std::vector<Phase> phases_of(const Program& program, const LocalGraph& local) {
  std::map<std::string_view, Phase> by_name;
  for (const Node& node : local.graph.nodes()) by_name.emplace(node.name, node.phase);
  std::vector<Phase> phases;
  for (const Instruction& in : program.instructions) {
    const auto found = by_name.find(in.name);
    phases.push_back(found == by_name.end() ? Phase::forward : found->second);
  }
  return phases;
}

namespace {

// Goes through the calls of a step: what is written lives until it is read last, what a sum keeps from turn to turn
// from its first turn to its last, and what is sent until the send has been waited for.
class Lives {
 public:
  explicit Lives(const Program& program) : program_(program) {}

  std::vector<int64_t> run() {
    for (size_t c = 0; c < program_.calls.size(); ++c) {
      const BlockCall& call = program_.calls[c];
      for (int event : program_.waits[c]) end_send(event);
      const auto block = std::ranges::find(program_.blocks, call.id(), &Block::id);
      for (int i = block->first; i < block->last; ++i, ++time_) visit(i, call.micro_batch);
    }
    for (const auto& [event, range] : sending_) ranges_[range].last = time_ - 1;
    std::vector<int64_t> bytes(static_cast<size_t>(time_) + 1, 0);
    for (const Range& range : ranges_) {
      bytes[static_cast<size_t>(range.first)] += range.bytes;
      bytes[static_cast<size_t>(range.last) + 1] -= range.bytes;
    }
    for (size_t t = 1; t < bytes.size(); ++t) bytes[t] += bytes[t - 1];
    bytes.pop_back();
    return bytes;
  }

 private:
  struct Range {
    int64_t bytes = 0;
    int first = 0, last = 0;
  };

  void end_send(int event) {
    const auto sent = sending_.find(event);
    if (sent == sending_.end()) return;
    ranges_[sent->second].last = std::max(ranges_[sent->second].last, time_ - 1);
    sending_.erase(sent);
  }

  void visit(int i, int64_t micro_batch) {
    const Instruction& in = program_.instructions[static_cast<size_t>(i)];
    const auto address = [&](const Location& at) { return program_.offset_of(at, micro_batch); };
    for (const Location& at : in.inputs) {
      const auto written = at.space == Location::Space::arena ? latest_.find(address(at)) : latest_.end();
      if (written == latest_.end()) continue;
      ranges_[written->second].last = time_;
      if (in.records >= 0) sending_[in.records + (program_.loops(i) ? micro_batch : 0)] = written->second;
    }
    const bool unfinished = in.transfer && in.transfer->at_last_turn && micro_batch + 1 != program_.micro_batches();
    for (size_t o = 0; !unfinished && o < in.outputs.size(); ++o) {
      const Location& at = in.outputs[o];
      const bool in_place = std::ranges::find(in.inputs, at) != in.inputs.end();
      if (at.space != Location::Space::arena || in_place) continue;
      latest_[address(at)] = add(in.query->out(static_cast<int>(o)).bytes());
    }
    if (in.workspace.space != Location::Space::arena) return;
    if (!in.transfer || !in.transfer->held_bytes) {
      add(in.workspace_bytes);
    } else if (const auto held = held_.find(i); held != held_.end()) {
      ranges_[held->second].last = time_;
    } else {
      held_[i] = add(in.workspace_bytes + in.transfer->held_bytes(in, program_.micro_batches()));
    }
  }

  size_t add(int64_t bytes) {
    ranges_.push_back({aligned_bytes(bytes), time_, time_});
    return ranges_.size() - 1;
  }

  const Program& program_;
  int time_ = 0;
  std::vector<Range> ranges_;
  std::map<int64_t, size_t> latest_;   // by address
  std::map<int, size_t> held_;         // by instruction
  std::map<int64_t, size_t> sending_;  // by event
};

}  // namespace

std::vector<int64_t> live_bytes(const Program& program) { return Lives(program).run(); }

}  // namespace epl
