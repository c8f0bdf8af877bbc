// A training job: steps over a dataset, measured on data that is not trained on, saved on the way, gone on with later.
// The one loop of the engine, which the C API shows as `epl_job`.
//
// It is asked for one event after the other. Between two of them its caller has the session: to predict, to look at the
// weights, to end the job. After an error nothing has changed, and asking again does the same again: a batch that a
// step could not take is kept.
// Over processes all make the same calls. What decides when something is done is the same in all of them: steps and
// measured numbers, never the clock. Before each thing that they do together they say what they are about to do: so all
// end at the same step, whoever was told to end, and a process that was cancelled alone finds the others again.
// Thread safety: one caller at a time; `end` from any thread.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/host.h"
#include "core/job/event.h"
#include "core/job/history.h"
#include "core/job/run_folder.h"
#include "core/job/settings.h"
#include "core/job/watch.h"
#include "core/runtime/session.h"
#include "core/runtime/session_checkpoint.h"

namespace epl {

// What a job works with, the same at each call.
struct JobParts {
  Session& session;
  TrainingData data;            // bound to the train entry
  Dataset* held_out = nullptr;  // bound to the evaluate entry; null: none
};

class Job {
 public:
  explicit Job(const Host& host) : host_(host) {}

  // Before it has started. All of an object of JSON, or none of it.
  Status set(std::string_view json);
  Status set(std::string_view key, std::string_view text);
  // Takes the folder now instead of at the start, so that what is in its way is known before anything else is made. Of
  // several processes the one with rank 0 may do so.
  Status take_folder();
  // Refuses what would fail later, and loads the checkpoint that the job goes on from.
  Status start(const JobParts& parts, const Stop& stop);
  // Works until there is something to tell. After `done` it tells that again.
  Result<JobEvent> next(const JobParts& parts, const Stop& stop);
  // No step follows those that are done; the end is then as always: a last measurement, unless the job was cancelled or
  // has failed, and a last checkpoint. The first reason counts.
  Status end(JobEnd how, std::string_view reason);

  bool started() const { return started_; }
  // Settings, where it stands and what it has measured.
  Json describe() const;

 private:
  enum class Todo : uint8_t { step, measure, save_best, save, last_measure, last_best, last_save, restore, done };
  Status take_settings(Attributes given);
  Status read_settings();
  Status open_folder(bool leads);
  Status check_length(const Dataset& data);
  Status prepare(const JobParts& parts, const Stop& stop);
  Status check_data(const JobParts& parts, const Stop& stop) const;
  Status check_folder_is_seen(Session& session) const;
  Status check_continues(const JobParts& parts) const;
  Status go_on(const JobParts& parts, const Stop& stop);
  Status tell_held_out(const JobParts& parts, const Json& earlier);
  Status check_alike(const JobParts& parts);
  Status advance(const JobParts& parts, const Stop& stop);
  Status go_on_to(const JobParts& parts, const Stop& stop);
  bool is_shared(const JobParts& parts, bool last) const;
  Status agree_on_next(const JobParts& parts, const Stop& stop);
  Status take_end(Session& session, const std::vector<int64_t>& said);
  Status end_alone(const Session& session, const Status& why);
  Status read_batch(const JobParts& parts, const Stop& stop);
  bool data_ended(const JobParts& parts, const Status& status) const;
  Status take_step(const JobParts& parts, const Stop& stop);
  void count_samples(const JobParts& parts);
  Status measure(const JobParts& parts, const Stop& stop, bool counts, Todo best, Todo otherwise);
  Status save(const JobParts& parts, const Stop& stop, bool best);
  Status note_saved(const JobParts& parts, bool best);
  Status save_on_the_way(const JobParts& parts, const Stop& stop, bool best);
  Status save_last(const JobParts& parts, const Stop& stop);
  Status save_what_is_left(const JobParts& parts, const Stop& stop, bool best);
  Status restore_best(const JobParts& parts, const Stop& stop);
  void note_end(const JobParts& parts);
  bool abandoned() const;  // its numbers do not matter any more: it is saved, and that is all
  bool due_to_save(const JobParts& parts) const;
  void set_end(JobEnd how, std::string_view reason);
  void tell_end();
  void tell(JobEventKind kind, std::string text, bool best = false);
  void flush_history();
  double seconds() const { return earlier_seconds_ + host_.seconds() - began_; }

  const Host host_;
  Attributes given_;
  JobSettings settings_;
  std::string resume_;  // the checkpoint that it goes on from; empty: none
  std::unique_ptr<RunFolder> folder_;
  bool leads_ = true;  // of several processes: it looks after the folder
  std::unique_ptr<Watch> watch_;
  History history_;
  bool started_ = false;
  Todo todo_ = Todo::step;
  std::deque<JobEvent> waiting_;
  JobEvent now_;  // the numbers as they stand
  std::vector<Tensor> batch_;
  int64_t batch_position_ = -1;  // of a batch that no step has taken yet; -1: there is none
  int64_t first_step_ = 0, first_samples_ = 0, saved_step_ = -1, measured_step_ = -1, best_saved_step_ = -1;
  JobEnd ended_ = JobEnd::running;                 // what all processes go by
  bool all_saved_ = false, all_measured_ = false;  // at this step, in all processes
  bool best_lost_ = false;                         // the folder does not have the best weights
  std::string unsaved_;                            // another process may come back to the checkpoint that failed
  double began_ = 0, last_saved_ = 0, earlier_seconds_ = 0;
  // What `end` was told, by the host or by the job itself.
  mutable std::mutex ending_;
  JobEnd end_ = JobEnd::running;
  std::string end_reason_;
};

}  // namespace epl
