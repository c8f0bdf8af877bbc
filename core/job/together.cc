// A job of several processes: what they have in common, and what they do next.
#include <algorithm>

#include "core/job/job.h"

namespace epl {
namespace {

// What a process is about to do, from what is to be done first, as a number that the others are told.
struct Said {
  int next = 0;  // in `order`
  JobEnd end = JobEnd::running;
  bool saved = false, measured = false;
};

int64_t number_of(const Said& said) {
  return said.next * 64 + static_cast<int>(said.end) * 4 + (said.saved ? 2 : 0) + (said.measured ? 1 : 0);
}

Said said_by(int64_t number) {
  return {static_cast<int>(number / 64), static_cast<JobEnd>(number / 4 % 16), (number & 2) != 0, (number & 1) != 0};
}

// The end that counts where processes want different ones: who does not wait for a last measurement comes first.
int urgency(JobEnd end) {
  switch (end) {
    case JobEnd::cancelled:
      return 6;
    case JobEnd::failed:
      return 5;
    case JobEnd::stopped:
      return 4;
    case JobEnd::patience:
      return 3;
    case JobEnd::data:
      return 2;
    case JobEnd::steps:
      return 1;
    case JobEnd::running:
      break;
  }
  return 0;
}

}  // namespace

// Whether the processes do together what is next: all of them know that by themselves.
bool Job::is_shared(const JobParts& parts, bool last) const {
  switch (todo_) {
    case Todo::measure:
      return !last && watch_->due(parts.session.host_state().steps_done(), settings_.steps);
    case Todo::save:
      return !last && due_to_save(parts);
    case Todo::restore:
    case Todo::done:
      return false;
    default:
      return true;
  }
}

// They do what comes first of all that is said. A step comes after what follows the step before it.
Status Job::agree_on_next(const JobParts& parts, const Stop& stop) {
  Session& session = parts.session;
  const int64_t step = session.host_state().steps_done();
  const bool last = settings_.steps > 0 && step >= settings_.steps;
  if (session.world().over_processes() && !is_shared(parts, last)) return {};
  constexpr Todo order[] = {Todo::measure,   Todo::save_best, Todo::save,    Todo::step, Todo::last_measure,
                            Todo::last_best, Todo::last_save, Todo::restore, Todo::done};
  Said own{.next = static_cast<int>(std::ranges::find(order, todo_) - order),
           .saved = saved_step_ == step,
           .measured = measured_step_ == step};
  {
    const std::lock_guard lock(ending_);
    own.end = end_;
  }
  if (own.end != JobEnd::running) session.world().hasten();
  const Result<std::vector<int64_t>> said = session.world().tell(number_of(own), stop);
  if (!said.ok()) return end_alone(session, said.status());
  Said first = own;
  all_saved_ = all_measured_ = true;
  for (const int64_t number : *said) {
    const Said other = said_by(number);
    first.next = std::min(first.next, other.next);
    all_saved_ = all_saved_ && other.saved;
    all_measured_ = all_measured_ && other.measured;
  }
  EPL_TRY(take_end(session, *said));
  if (!unsaved_.empty() && first.next == own.next && !abandoned()) tell(JobEventKind::warning, unsaved_);
  unsaved_.clear();
  todo_ = order[first.next];
  if (todo_ < Todo::last_save && abandoned()) todo_ = Todo::last_save;
  return {};
}

// A process that is gone keeps the others from what all do together, but not from their end and its checkpoint.
Status Job::end_alone(const Session& session, const Status& why) {
  const std::lock_guard lock(ending_);
  if (end_ == JobEnd::running || session.world().lost().ok()) return why;
  ended_ = end_;
  todo_ = Todo::last_save;
  return {};
}

// The end of the process whose end counts most, with its reason.
Status Job::take_end(Session& session, const std::vector<int64_t>& said) {
  size_t chosen = 0;
  bool alike = true;
  for (size_t p = 1; p < said.size(); ++p) {
    if (urgency(said_by(said[p]).end) > urgency(said_by(said[chosen]).end)) chosen = p;
    alike = alike && said_by(said[p]).end == said_by(said[0]).end;
  }
  std::string reason;
  {
    const std::lock_guard lock(ending_);
    reason = end_reason_;
  }
  if (!alike) {
    EPL_ASSIGN(const std::vector<std::string> reasons, session.world().tell(reason));
    reason = reasons[chosen];
  }
  ended_ = said_by(said[chosen]).end;
  if (ended_ == JobEnd::running) return {};
  const std::lock_guard lock(ending_);
  end_ = ended_;
  end_reason_ = reason;
  return {};
}

// What decides when something is done is the same in all of them.
Status Job::check_alike(const JobParts& parts) {
  if (!parts.session.world().over_processes()) return {};
  const Dataset& data = *parts.data.dataset;
  const auto size_of = [](const Dataset* set) {
    return set == nullptr ? std::string("none") : set->endless() ? std::string("endless") : cat(set->samples());
  };
  const std::vector<std::pair<const char*, std::string>> own = {
      {"steps", cat(settings_.steps)},
      {"the batches of an epoch", data.endless() ? std::string("unknown") : cat(data.batches())},
      {"the samples of held-out data", size_of(parts.held_out)},
      {"evaluate_every", cat(settings_.evaluate_every)},
      {"evaluate_epochs", cat(settings_.evaluate_epochs)},
      {"evaluate_batches", cat(settings_.evaluate_batches)},
      {"metrics", settings_.metrics},
      {"monitor", settings_.monitor},
      {"patience", cat(settings_.patience)},
      {"restore_best", settings_.restore_best ? "true" : "false"},
      {"folder", settings_.folder.empty() ? "none" : "given"},
      {"checkpoint_every", cat(settings_.checkpoint_every)},
      {"resume", resume_.empty() ? "nothing" : "a checkpoint"}};
  Json text = Json::array();
  for (const auto& [key, value] : own) text.push_back(value);
  EPL_ASSIGN(const std::vector<std::string> said, parts.session.world().tell(print_json(text)));
  std::vector<std::string> differences;
  for (size_t p = 1; p < said.size() && differences.empty(); ++p) {
    EPL_ASSIGN(const Json zero, parse_json(said[0]));
    EPL_ASSIGN(const Json other, parse_json(said[p]));
    for (size_t i = 0; i < own.size(); ++i) {
      const std::string before = zero[i].get<std::string>(), now = other[i].get<std::string>();
      if (before != now)
        differences.push_back(cat(own[i].first, " is ", before, " in process 0 and ", now, " in process ", p));
    }
  }
  if (differences.empty()) return {};
  return invalid("the processes have different jobs: ", join(differences, "; "), ". Give all of them the same");
}

}  // namespace epl
