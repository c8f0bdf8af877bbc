#include "core/job/job.h"

#include <algorithm>

namespace epl {
namespace {

std::string metrics_json(const NamedNumbers& metrics) {
  Json out = Json::object();
  for (const auto& [name, value] : metrics) out[name] = value;
  return print_json(out);
}

bool was_stopped(const Status& status) {
  return status.code() == Code::cancelled || status.code() == Code::deadline_exceeded;
}

}  // namespace

Status Job::end(JobEnd how, std::string_view reason) {
  const std::lock_guard lock(ending_);
  if (end_ != JobEnd::running) return {};
  end_reason_ = reason;
  end_ = how;
  return {};
}

void Job::set_end(JobEnd how, std::string_view reason) { static_cast<void>(end(how, reason)); }

void Job::note_end(const JobParts& parts) {
  if (settings_.steps > 0 && parts.session.host_state().steps_done() >= settings_.steps) set_end(JobEnd::steps, "");
  if (const std::string why = watch_->wants_end(); !why.empty()) set_end(JobEnd::patience, why);
}

bool Job::abandoned() const { return ended_ == JobEnd::cancelled || ended_ == JobEnd::failed; }

Result<JobEvent> Job::next(const JobParts& parts, const Stop& stop) {
  if (!started_) return error(Code::misuse, "this job has not started");
  while (waiting_.empty()) EPL_TRY(advance(parts, stop));
  JobEvent out = std::move(waiting_.front());
  waiting_.pop_front();
  return out;
}

Status Job::advance(const JobParts& parts, const Stop& stop) {
  if (todo_ == Todo::step) note_end(parts);
  EPL_TRY(agree_on_next(parts, stop));
  return go_on_to(parts, stop);
}

Status Job::go_on_to(const JobParts& parts, const Stop& stop) {
  Session& session = parts.session;
  const bool last = settings_.steps > 0 && session.host_state().steps_done() >= settings_.steps;
  switch (todo_) {
    case Todo::step:
      if (ended_ == JobEnd::running) return take_step(parts, stop);
      todo_ = Todo::last_measure;
      return {};
    case Todo::measure:
      if (last || !watch_->due(session.host_state().steps_done(), settings_.steps)) {
        todo_ = Todo::save;
        return {};
      }
      return measure(parts, stop, true, Todo::save_best, Todo::save);
    case Todo::save_best:
      EPL_TRY(save_on_the_way(parts, stop, true));
      todo_ = Todo::save;
      return {};
    case Todo::save:
      if (!last && due_to_save(parts)) EPL_TRY(save_on_the_way(parts, stop, false));
      todo_ = Todo::step;
      return {};
    case Todo::last_measure:
      if (watch_->any() && !all_measured_) {
        const bool counts = watch_->due(session.host_state().steps_done(), settings_.steps);
        return measure(parts, stop, counts, Todo::last_best, Todo::last_save);
      }
      todo_ = Todo::last_save;
      return {};
    case Todo::last_best:
      EPL_TRY(save_on_the_way(parts, stop, true));
      todo_ = Todo::last_save;
      return {};
    case Todo::last_save:
      EPL_TRY(save_last(parts, stop));
      todo_ = Todo::restore;
      return {};
    case Todo::restore:
      EPL_TRY(restore_best(parts, stop));
      todo_ = Todo::done;
      flush_history();
      return {};
    case Todo::done:
      tell_end();
      return {};
  }
  return {};
}

// Where several processes have one job, the others are told why there is no step.
Status Job::read_batch(const JobParts& parts, const Stop& stop) {
  Dataset& data = *parts.data.dataset;
  const int64_t before = data.position();
  if (batch_position_ >= 0 && before == batch_position_ + 1) return {};  // the one that is kept
  batch_position_ = -1;
  const Result<std::span<const Tensor>> next = data.next(stop);
  if (!next.ok()) return parts.session.world().give_up(next.status());
  batch_.assign(next->begin(), next->end());
  batch_position_ = before;
  return {};
}

// What a host gives without knowing how much there is ends with an error of its own.
bool Job::data_ended(const JobParts& parts, const Status& status) const {
  return status.code() == Code::not_found && parts.data.dataset->endless() && !parts.session.world().over_processes();
}

Status Job::take_step(const JobParts& parts, const Stop& stop) {
  Session& session = parts.session;
  Dataset& data = *parts.data.dataset;
  if (const Status read = read_batch(parts, stop); !read.ok()) {
    if (!data_ended(parts, read)) return read;
    set_end(JobEnd::data, read.message());
    return {};
  }
  const int64_t steps = session.host_state().steps_done();
  const CallOptions options{.stop = stop,
                            .position = [&data](size_t input, int64_t row) { return data.position_given(input, row); }};
  StepMetrics metrics;
  Status status = session.step(batch_, metrics, options);
  if (status.ok()) status = metrics.skipped;
  const bool made = session.host_state().steps_done() != steps;
  // A batch that no step has taken comes again. One that nobody can give again is kept.
  if (!made && !data.endless()) {
    const int64_t before = batch_position_;
    batch_position_ = -1;
    EPL_TRY(data.seek(before));
  }
  if (made) {
    batch_position_ = -1;
    todo_ = Todo::measure;
  }
  EPL_TRY(status);
  now_.loss_scale = session.host_state().loss_scale();
  now_.skipped_steps = session.host_state().skipped_steps();
  // The batch comes again, at half the loss scale. The event of the step that is made then says how often.
  if (metrics.overflowed) return {};
  now_.step = session.host_state().steps_done();
  now_.loss = metrics.loss;
  now_.learning_rate = metrics.learning_rate;
  now_.gradient_norm = metrics.gradient_norm;
  now_.memory_bytes = session.memory_bytes_used();
  count_samples(parts);
  tell(JobEventKind::step, "");
  history_.add_step(now_);
  return {};
}

void Job::count_samples(const JobParts& parts) {
  const Dataset& data = *parts.data.dataset;
  const int64_t position = data.position() - (batch_position_ >= 0 ? 1 : 0);
  now_.samples = position * parts.session.plan().entries().front().plan.batch;
  if (!data.endless()) now_.epoch = static_cast<double>(position) / static_cast<double>(data.batches());
  now_.seconds = seconds();
  const double taken = now_.seconds - earlier_seconds_;
  const auto done = static_cast<double>(now_.step - first_step_);
  if (done <= 0 || taken <= 0) return;
  now_.samples_per_second = static_cast<double>(now_.samples - first_samples_) / taken;
  if (settings_.steps > 0) now_.seconds_left = static_cast<double>(settings_.steps - now_.step) * taken / done;
}

Status Job::measure(const JobParts& parts, const Stop& stop, bool counts, Todo best, Todo otherwise) {
  EPL_ASSIGN(const Watch::Measured measured, watch_->measure(parts.session, *parts.held_out, stop));
  const int64_t step = parts.session.host_state().steps_done();
  if (measured_step_ == step) {  // another process was not done with it, this one was
    todo_ = watch_->best_step() == step && folder_ ? best : otherwise;
    return {};
  }
  EPL_TRY(watch_->note(parts.session, measured, step, counts));
  measured_step_ = step;
  todo_ = measured.best && folder_ ? best : otherwise;
  now_.held_out_loss = measured.metrics.front().second;
  now_.monitored = measured.monitored;
  now_.best_step = watch_->best_step();
  if (watch_->best()) now_.best_value = *watch_->best();
  now_.seconds = seconds();
  tell(JobEventKind::measured, metrics_json(measured.metrics), measured.best);
  waiting_.back().samples = measured.samples;
  history_.add_measured(waiting_.back(), measured.metrics);
  return {};
}

// In several processes no clock decides: they have to save together.
bool Job::due_to_save(const JobParts& parts) const {
  if (!folder_) return false;
  if (settings_.checkpoint_every > 0) return parts.session.host_state().steps_done() % settings_.checkpoint_every == 0;
  return settings_.checkpoint_seconds > 0 && !parts.session.world().over_processes() &&
         host_.seconds() - last_saved_ > settings_.checkpoint_seconds;
}

Status Job::save(const JobParts& parts, const Stop& stop, bool best) {
  const int64_t step = parts.session.host_state().steps_done();
  const std::string path = folder_->step_folder(step);
  if (all_saved_ && !best) return {};
  if (!all_saved_) {
    const StopScope stopping(parts.session.world().call(), stop);
    EPL_TRY(save_session(parts.session, path, parts.data));
  }
  if (leads_) EPL_TRY(folder_->saved(step, best, settings_.keep));
  return note_saved(parts, best);
}

Status Job::note_saved(const JobParts& parts, bool best) {
  const int64_t step = parts.session.host_state().steps_done();
  saved_step_ = step;
  if (best) best_saved_step_ = step;
  best_lost_ = best_lost_ && !best;
  last_saved_ = host_.seconds();
  tell(JobEventKind::saved, folder_->step_folder(step), best);
  flush_history();
  return {};
}

// A disk that is full for a moment must not end a job that goes well. Where it is another process that has failed, the
// next agreement tells whether that one goes on or comes back to this.
Status Job::save_on_the_way(const JobParts& parts, const Stop& stop, bool best) {
  const Status status = save(parts, stop, best);
  if (status.ok() || was_stopped(status)) return status;
  best_lost_ = best_lost_ || best;
  last_saved_ = host_.seconds();
  const std::string warning = cat("no checkpoint after step ", parts.session.host_state().steps_done(), ": ",
                                  status.message(), "; training goes on");
  if (status.code() == Code::peer_failed) {
    unsaved_ = warning;
  } else {
    tell(JobEventKind::warning, warning);
  }
  return {};
}

// It goes on with the first batch that no step has taken. A job that was ended right after a measurement has not saved
// what is best yet.
Status Job::save_last(const JobParts& parts, const Stop& stop) {
  if (batch_position_ >= 0) {
    const int64_t position = batch_position_;
    batch_position_ = -1;
    EPL_TRY(parts.data.dataset->seek(position));
  }
  const bool best =
      watch_->best_step() == parts.session.host_state().steps_done() && best_saved_step_ != watch_->best_step();
  if (!folder_) return {};
  return parts.session.world().lost().ok() ? save(parts, stop, best) : save_what_is_left(parts, stop, best);
}

// By the first process that has all of the state; the others know which one that is, and wait for it: whoever has
// started them may end all once one of them has ended.
Status Job::save_what_is_left(const JobParts& parts, const Stop& stop, bool best) {
  Session& session = parts.session;
  const int64_t step = session.host_state().steps_done();
  if (saved_step_ == step) {
    session.world().leave();
    return {};
  }
  const Status& lost = session.world().lost();
  const int keeper = session.state().keeper();
  if (keeper < 0) {
    return Status(lost.code(), cat(lost.message(),
                                   ". No process that is left has all of the state, so this step is not "
                                   "saved; go on from the newest checkpoint"))
        .of_rank(lost.rank());
  }
  const bool saves = session.world().is_local(keeper);
  const StopScope stopping(session.world().call(), stop);
  Status status =
      saves ? save_alone(session, folder_->step_folder(step), parts.data) : session.world().await_leave(keeper, stop);
  if (saves && status.ok()) status = folder_->saved(step, best, settings_.keep);
  if (saves) session.world().leave();
  EPL_TRY(status);
  tell(JobEventKind::warning, cat(lost.message(), saves ? "; the last checkpoint is what this process has"
                                                        : cat("; the last checkpoint is what rank ", keeper, " has")));
  return saves ? note_saved(parts, best) : Status();
}

Status Job::restore_best(const JobParts& parts, const Stop& stop) {
  if (!settings_.restore_best || abandoned() || !parts.session.world().lost().ok() || watch_->best_step() < 0 ||
      watch_->best_step() == parts.session.host_state().steps_done())
    return {};
  if (best_lost_) {
    tell(JobEventKind::warning, cat("the best weights, those after step ", watch_->best_step(),
                                    ", could not be saved; the session keeps the last ones"));
    return {};
  }
  const StopScope stopping(parts.session.world().call(), stop);
  return load_session(parts.session, folder_->best());
}

void Job::tell_end() {
  {
    const std::lock_guard lock(ending_);
    now_.ended = end_;
    now_.text = end_reason_;
  }
  tell(JobEventKind::done, now_.text);
}

void Job::tell(JobEventKind kind, std::string text, bool best) {
  JobEvent event = now_;
  event.kind = kind;
  event.best = best;
  event.text = std::move(text);
  waiting_.push_back(std::move(event));
}

// Losing it must not end a job: it is only for a curve.
void Job::flush_history() {
  if (!leads_) return;
  if (const Status status = history_.flush(); !status.ok())
    tell(JobEventKind::warning, cat(status.message(), "; it is not written any further"));
}

}  // namespace epl
