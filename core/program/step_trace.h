// What the ranks of a job did in steps, and when: the records of executors, on the host's clock or, on a simulated
// device, in virtual time. Times of waiting and of moving are told apart here: a collective moves from when the last of
// its ranks has come.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/program/program.h"

namespace epl {

struct TraceEvent {
  static constexpr int agreement = -1;  // whether the step takes place: a collective of all ranks
  int64_t step = 0;
  int call = 0;         // of Program::calls
  int instruction = 0;  // of the program, or `agreement`
  double begin = 0, end = 0;
  double moves = 0;  // from then on it moves or computes; before, it waits for other ranks
  // The number that it has with those that other ranks make with it; -1: it is this rank's alone.
  int64_t collective_call = -1;
};

// One rank's.
struct RankTrace {
  int rank = 0, virtual_device = 0;
  const Program* program = nullptr;
  std::vector<std::vector<int>> members;  // by Program::groups: its ranks, ascending; none: it is alone in its group
  std::vector<TraceEvent> events;         // in the order in which they were issued
  const Instruction* instruction(const TraceEvent& event) const {
    return event.instruction < 0 ? nullptr : &program->instructions[static_cast<size_t>(event.instruction)];
  }
  // With whom it makes the call; null: it goes no further than this rank, or it has nobody to send to.
  const std::vector<int>* group(const TraceEvent& event) const {
    const Instruction* in = instruction(event);
    if (!in || in->group < 0) return nullptr;
    const std::vector<int>& of = members[static_cast<size_t>(in->group)];
    return of.empty() ? nullptr : &of;
  }
};

struct StepTrace {
  std::vector<RankTrace> ranks;
  double begin() const;  // the first event
  double end() const;    // of the last
};

// Fills `moves` and `collective_call`, and makes a send last until its receiver has it.
void find_collective_calls(StepTrace& trace);

// How a rank spent a trace, from its first event to the last of all: in seconds of its first stream.
struct RankTime {
  double computing = 0, moving = 0, waiting = 0;
};
RankTime time_of(const RankTrace& rank, double begin, double end);

}  // namespace epl
