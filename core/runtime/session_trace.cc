// What a session records of its steps.
#include <algorithm>

#include "core/runtime/session.h"

namespace epl {

void Session::record(int64_t steps, size_t entry) {
  for (const auto& rank : world_->ranks()) {
    const Program& program = plan_->entries()[entry].programs[static_cast<size_t>(rank->virtual_device)];
    size_t room = 1;  // the agreement
    for (const BlockCall& call : program.calls) {
      for (const Block& block : program.blocks)
        room += block.id == call.id() ? static_cast<size_t>(block.last - block.first) : 0;
    }
    rank->events = {};
    rank->events.reserve(room * static_cast<size_t>(steps));
    for (const auto& executor : rank->executors) {
      if (executor) executor->record(nullptr);
    }
    if (steps > 0) rank->executors[entry]->record(&rank->events);
  }
}

StepTrace Session::trace() const {
  StepTrace trace;
  for (const auto& rank : world_->ranks()) {
    const auto recorded = std::ranges::find_if(rank->executors, [](const auto& one) { return one && one->records(); });
    const auto entry = recorded == rank->executors.end() ? 0 : static_cast<size_t>(recorded - rank->executors.begin());
    RankTrace& made = trace.ranks.emplace_back();
    made.rank = rank->number;
    made.virtual_device = rank->virtual_device;
    made.program = &plan_->entries()[entry].programs[static_cast<size_t>(rank->virtual_device)];
    for (const ProgramGroup& group : made.program->groups) made.members.push_back(members_of(*plan_, group, *rank));
    made.events = rank->events;
  }
  find_collective_calls(trace);
  return trace;
}

}  // namespace epl
