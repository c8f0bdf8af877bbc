// What a session records of its steps.
#include "core/runtime/session_rank.h"

namespace epl {

void Session::record(int64_t steps) {
  for (const auto& rank : ranks_) {
    const Program& program = plan_->entries().front().programs[static_cast<size_t>(rank->rank_class)];
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
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const Rank& rank = *ranks_[r];
    RankTrace& made = trace.ranks.emplace_back();
    made.rank = options_.first_rank + static_cast<int>(r);
    made.rank_class = rank.rank_class;
    made.program = &plan_->entries().front().programs[static_cast<size_t>(rank.rank_class)];
    for (const ProgramGroup& group : made.program->groups)
      made.members.push_back(members_of(group, rank.rank_class, made.rank));
    made.events = rank.events;
  }
  find_meetings(trace);
  return trace;
}

}  // namespace epl
