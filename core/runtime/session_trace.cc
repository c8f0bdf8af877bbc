// What a session records of its steps.
#include "core/runtime/session.h"

namespace epl {

void Session::record(int64_t steps) {
  for (const auto& rank : world_->ranks()) {
    const Program& program = plan_->entries().front().programs[static_cast<size_t>(rank->virtual_device)];
    size_t room = 1;  // the agreement
    for (const BlockCall& call : program.calls) {
      for (const Block& block : program.blocks)
        room += block.id == call.id() ? static_cast<size_t>(block.last - block.first) : 0;
    }
    rank->events = {};
    rank->events.reserve(room * static_cast<size_t>(steps));
    rank->executors.front()->record(steps > 0 ? &rank->events : nullptr);
  }
}

StepTrace Session::trace() const {
  StepTrace trace;
  for (const auto& rank : world_->ranks()) {
    RankTrace& made = trace.ranks.emplace_back();
    made.rank = rank->number;
    made.virtual_device = rank->virtual_device;
    made.program = &plan_->entries().front().programs[static_cast<size_t>(rank->virtual_device)];
    for (const ProgramGroup& group : made.program->groups) made.members.push_back(members_of(*plan_, group, *rank));
    made.events = rank->events;
  }
  find_collective_calls(trace);
  return trace;
}

}  // namespace epl
