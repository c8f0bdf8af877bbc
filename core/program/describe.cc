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

// Goes through the calls of a step: what is written lives until it is read last, what a sum keeps from iteration to
// iteration from its first iteration to its last, and what is sent until the send has been waited for.
class Unrolled {
 public:
  explicit Unrolled(const Program& program) : program_(program) {}

  Lives run() {
    for (int c = 0; c < std::ssize(program_.calls); ++c) {
      const BlockCall& call = program_.calls[c];
      for (const CallWait& wait : program_.waits[c]) {
        if (wait.instruction < 0) end_send(wait.event);
      }
      const auto block = std::ranges::find(program_.blocks, call.id(), &Block::id);
      for (int i = block->first; i < block->last; ++i, ++time_) {
        lives_.order.push_back(i);
        visit(i, call.micro_batch);
      }
    }
    for (const auto& [event, range] : sending_) lives_.ranges[range].last = time_ - 1;
    lives_.instructions = time_;
    return std::move(lives_);
  }

 private:
  void end_send(int event) {
    const auto sent = sending_.find(event);
    if (sent == sending_.end()) return;
    lives_.ranges[sent->second].last = std::max(lives_.ranges[sent->second].last, time_ - 1);
    sending_.erase(sent);
  }

  void visit(int i, int64_t micro_batch) {
    const Instruction& in = program_.instructions[i];
    const auto address = [&](const Location& at) { return program_.offset_of(at, micro_batch); };
    for (const Location& at : in.inputs) {
      if (!at.in_arena()) continue;
      const auto written = latest_.find(address(at));
      if (written == latest_.end()) {
        lives_.unwritten.push_back(in.name);
        continue;
      }
      lives_.ranges[written->second].last = time_;
      if (in.transfer && in.transfer->sends)
        sending_[in.records + (program_.loops(i) ? micro_batch : 0)] = written->second;
    }
    const bool unfinished =
        in.transfer && in.transfer->at_last_iteration && micro_batch + 1 != program_.micro_batches();
    for (size_t o = 0; !unfinished && o < in.outputs.size(); ++o) {
      const Location& at = in.outputs[o];
      if (!at.in_arena()) continue;
      const Life::Content content{time_, i, static_cast<int>(o)};
      // Over an operand, or over the rank's own segment of it.
      const auto same = [&](const Location& from) { return from.in_arena() && address(from) == address(at); };
      if (std::ranges::any_of(in.inputs, same)) {
        if (const auto there = latest_.find(address(at)); there != latest_.end())
          lives_.ranges[there->second].contents.push_back(content);
        continue;
      }
      latest_[address(at)] = add(address(at), in.query->out(static_cast<int>(o)).bytes(), content);
    }
    if (!in.workspace.in_arena()) return;
    const Life::Content workspace{time_, i, -1};
    if (!in.transfer || !in.transfer->held_bytes) {
      add(address(in.workspace), in.workspace_bytes, workspace);
    } else if (const auto held = held_.find(i); held != held_.end()) {
      lives_.ranges[held->second].last = time_;
    } else {
      held_[i] = add(address(in.workspace), in.workspace_bytes + in.transfer->held_bytes(in, program_.micro_batches()),
                     workspace);
    }
  }

  size_t add(int64_t address, int64_t bytes, const Life::Content& content) {
    lives_.ranges.push_back({address, aligned_bytes(bytes), bytes, time_, time_, {content}});
    return lives_.ranges.size() - 1;
  }

  const Program& program_;
  int time_ = 0;
  Lives lives_;
  std::map<int64_t, size_t> latest_;   // by address
  std::map<int, size_t> held_;         // by instruction
  std::map<int64_t, size_t> sending_;  // by event
};

}  // namespace

Lives lives_of(const Program& program) { return Unrolled(program).run(); }

std::vector<int64_t> live_bytes(const Program& program) {
  const Lives lives = lives_of(program);
  std::vector<int64_t> bytes(static_cast<size_t>(lives.instructions) + 1, 0);
  for (const Life& life : lives.ranges) {
    bytes[life.first] += life.bytes;
    bytes[static_cast<size_t>(life.last) + 1] -= life.bytes;
  }
  for (size_t t = 1; t < bytes.size(); ++t) bytes[t] += bytes[t - 1];
  bytes.pop_back();
  return bytes;
}

}  // namespace epl
