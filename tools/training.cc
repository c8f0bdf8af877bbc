#include "tools/training.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "tools/binding.h"
#include "tools/clock.h"
#include "tools/commands.h"
#include "tools/data_notes.h"
#include "tools/json_lines.h"
#include "tools/language_job.h"
#include "tools/measure.h"
#include "tools/progress.h"
#include "tools/signals.h"
#include "tools/tensorboard.h"
#include "tools/text.h"

namespace epl::tools {
namespace {

// The folder that the run writes to; what would fail later is refused before anything is made.
std::string folder_of(const TrainOptions& o) {
  if (computes_nothing(o.job.device))
    throw UsageError("--device " + o.job.device +
                     " computes no numbers, so that there is nothing to train on; epl "
                     "plan --device " +
                     o.job.device + " says what it would cost");
  if (!o.out.empty()) return o.out;
  return !o.resume.empty() && find_checkpoint(o.resume) != o.resume ? o.resume : "out";
}

// What a job is told before its data is known.
Json folder_settings(const TrainOptions& o, const std::string& folder, const std::string& resume) {
  std::string anyway;
  for (const std::string& topic : o.resume_anyway) anyway += (anyway.empty() ? "" : ",") + topic;
  return {{"folder", folder},
          {"resume", resume},
          {"resume_anyway", anyway},
          {"overwrite", o.overwrite},
          {"keep", o.keep},
          {"checkpoint_every", o.checkpoint_every},
          {"checkpoint_seconds", 60 * o.checkpoint_minutes},
          {"check", false}};  // it is done here, where files and windows of a text have names
}

Job make_job(const Engine& engine, const Json& settings) {
  const std::string text = print_json(settings);
  return make<Job>(epl_job_create, engine.get(), text.data(), text.size());
}

void set(epl_job* job, const Json& settings) {
  for (const auto& [key, value] : settings.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : print_json(value);
    check(epl_job_set(job, key.data(), key.size(), text.data(), text.size()));
  }
}

}  // namespace

Training::Training(const TrainOptions& o)
    : o_(o),
      resume_(o.resume.empty() ? "" : find_checkpoint(o.resume)),
      engine_(make_engine(o.job, &log_)),
      folder_(folder_of(o)),
      job_(make_job(engine_, folder_settings(o, folder_.path(), resume_))),
      report_path_(o.report.empty() ? folder_.path() + "/report.html" : o.report),
      report_(std::make_shared<ReportData>()) {
  if (leads()) take_folder();
  model_ = load_model(engine_, o.job.model);
  data_ = open_data(engine_, model_, o.job);
  plan_for_data();
  if (data_.held_out) bind_data(data_.held_out, plan_, EPL_ENTRY_EVALUATE, o_.job.processes, o_.job.ranks);
  ending_ = std::make_unique<Ending>(engine_);
  session_ = make_session(engine_, plan_, o_.job.processes, o_.job.ranks, store_, ending_->call());
  check_validation(o_.validation, o_.job, data_);
  compare_processes();
  check_data();
  if (leads()) {
    folder_.check_outputs(report_path_, bytes_to_write());
    folder_.check_adapters(!o_.job.lora.empty());
  }
  start_job();
  if (leads()) add_listeners();
}

void Training::take_folder() {
  try {
    check(epl_job_take_folder(job_.get()));
  } catch (const ApiError& e) {
    if (e.code == EPL_ERROR_BUSY) {
      const char* also =
          o_.job.processes.count == 1 ? "" : ". Where that is a process of this job, two of them have rank 0";
      throw UsageError("another run is writing to this folder: " + std::string(e.what()) + " with --out" + also);
    }
    if (e.code == EPL_ERROR_INVALID_ARGUMENT) refuse_used_folder(folder_.path());
    throw;
  }
  folder_.check_unused(resume_, o_.overwrite);
}

// How many steps some epochs are follows from the batches of one, which follow from the plan where it shards files; the
// plan's schedule follows from the steps.
void Training::plan_for_data() {
  const auto batches = [&] { return epl_dataset_batches(data_.train.get()); };
  for (int64_t counted = 0; counted != batches();) {
    counted = batches();
    if (o_.job.epochs) o_.job.steps = std::max<int64_t>(1, std::llround(*o_.job.epochs * static_cast<double>(counted)));
    Trainer trainer = make_trainer(engine_, o_.job);
    bind_inputs(trainer, model_, data_.train, o_.job);
    plan_ = make_plan(model_, trainer, make_strategy(engine_, o_.job), o_.job);
    bind_data(data_.train, plan_, EPL_ENTRY_TRAIN, o_.job.processes, o_.job.ranks);
    if (!o_.job.epochs) return;
  }
}

void Training::add_listeners() {
  listeners_.add(report_);
  if (o_.tensorboard) listeners_.add(std::make_shared<TensorBoard>(folder_.path(), log_));
  if (o_.job.json) {
    listeners_.add(std::make_shared<JsonLines>());
  } else {
    listeners_.add(std::make_shared<Progress>());
  }
}

// A text is checked in windows that do not overlap, though training starts them anywhere.
void Training::check_data() const {
  const std::string& path = o_.job.text.empty() ? o_.job.data : o_.job.text;
  if (data_.context > 0) {
    const DataFiles windows = open_data(engine_, model_, o_.job, true);
    bind_data(windows.train, plan_, EPL_ENTRY_TRAIN, o_.job.processes, o_.job.ranks);
    check_labels(plan_, windows.train, path, ending_->call());
  } else {
    check_labels(plan_, data_.train, path, ending_->call());
  }
  if (!data_.held_out) return;
  check_labels(plan_, data_.held_out, o_.job.validation.empty() ? path : o_.job.validation, ending_->call());
}

namespace {

// "optimizer (--optimizer) was adam, now it is sgd": the options are those that decide it.
std::string difference_text(const Json& one) {
  static const std::map<std::string, std::string, std::less<>> options = {
      {"adapters", "--lora, --rank, --lora-alpha, --lora-dropout"},
      {"trained", "--train-only, --freeze, --train-also, --lora"},
      {"optimizer", "--optimizer"},
      {"loss", "--loss"},
      {"loss.output", "--loss-output"},
      {"loss.target", "--loss-target"},
      {"loss.peel", "--no-peel"},
      {"data.batch", "--batch"},
      {"data.seed", "--seed"},
      {"seed", "--seed"},
      {"data.batch_dims", "--batch-dim"},
      {"data.values", "--value"}};
  const std::string key = one.at("key"), before = one.at("checkpoint"), now = one.at("session");
  const auto found = options.find(key);
  return key + (found == options.end() ? "" : " (" + found->second + ")") + " was " +
         (before.empty() ? "nothing" : before) + ", now it is " + (now.empty() ? "nothing" : now);
}

}  // namespace

// The job says which differences make another run of it; here they are named by their options.
void Training::refuse_resume() const {
  const Json differences = parse_json(text_of(epl_session_compare, session_.get(), resume_.data(), resume_.size(),
                                              static_cast<const epl_dataset*>(data_.train.get()), nullptr));
  std::string what, topics;
  for (const Json& one : differences) {
    const std::string topic = one.at("topic");
    const bool named = std::ranges::find(o_.resume_anyway, topic) != o_.resume_anyway.end();
    if (!one.at("breaks").get<bool>() || named) continue;
    what += (what.empty() ? "" : "; ") + difference_text(one);
    if (("," + topics + ",").find("," + topic + ",") == std::string::npos)
      topics += (topics.empty() ? "" : ",") + topic;
  }
  if (what.empty()) return;
  throw UsageError("--resume " + o_.resume + ": this would not go on with that run: " + what +
                   ". Give the options that it began with, or --resume-anyway " + topics);
}

void Training::start_job() {
  set(job_.get(), {{"steps", o_.job.steps}});
  set(job_.get(), validation_settings(o_.validation, o_.job, data_));
  try {
    check(epl_job_start(job_.get(), session_.get(), data_.train.get(), data_.held_out.get(), ending_->call()));
  } catch (const ApiError& e) {
    if (e.code == EPL_ERROR_INVALID_ARGUMENT && !resume_.empty() && e.where == resume_) refuse_resume();
    if (e.code == EPL_ERROR_INVALID_ARGUMENT && e.where == folder_.path())
      throw UsageError(std::string(e.what()) + " (--out)");
    throw;
  }
}

int64_t Training::bytes_to_write() const {
  int64_t state = 0, weights = 0;
  for (int32_t kind : {EPL_STATE_PARAMETER, EPL_STATE_FROZEN, EPL_STATE_BUFFER, EPL_STATE_OPTIMIZER}) {
    for (int64_t i = 0; i < epl_session_state_count(session_.get(), kind); ++i) {
      const Port port = port_of(epl_session_state_port, session_.get(), kind, i);
      const int64_t bytes = port.elements() * epl_dtype_bits(port.dtype) / 8;
      state += bytes;
      if (kind != EPL_STATE_OPTIMIZER) weights += bytes;
    }
  }
  std::error_code ignored;
  const auto model = static_cast<int64_t>(std::filesystem::file_size(o_.job.model, ignored));
  return state + std::max(ignored ? 0 : model, weights) + (1 << 20);
}

int Training::run() {
  const Json job = parse_json(text_of(epl_job_describe, job_.get()));
  first_step_ = epl_session_steps(session_.get());
  const JobStart start = describe(job);
  seconds_ = start.earlier_seconds;
  listeners_.start(start);
  for (const std::string& warning : warnings_of(model_, plan_)) listeners_.warning(warning);
  tell_warnings();
  if (!o_.job.data.empty() && leads()) tell_data(data_.train, folder_.path(), listeners_);
  if (data_.held_out) tell_held_out(job.at("held_out"));
  train();
  finish();
  if (const char* why = output_failure()) {
    say_error("epl: cannot write to standard output: %s; the run itself is saved in %s\n", why, folder_.path().c_str());
    if (failure_ == 0) failure_ = exit_code(EPL_ERROR_IO);
  }
  if (failure_ != 0) return failure_;
  if (interrupted()) return signal_exit_code();
  return ended_ == "interrupted" ? exit_code(EPL_ERROR_CANCELLED) : 0;
}

JobStart Training::describe(const Json& job) const {
  JobStart out;
  out.model = o_.job.model;
  out.out = folder_.path();
  out.tensors = epl_session_state_count(session_.get(), EPL_STATE_PARAMETER);
  for (int64_t i = 0; i < out.tensors; ++i)
    out.parameters += port_of(epl_session_state_port, session_.get(), EPL_STATE_PARAMETER, i).elements();
  out.first_step = first_step_;
  out.steps = o_.job.steps;
  out.batch = data_.batch;
  out.epoch_samples = epl_dataset_batches(data_.train.get()) * data_.batch;
  out.units_per_step = data_.batch * std::max<int64_t>(data_.context, 1);
  out.unit = data_.context > 0 ? "tokens" : "samples";
  out.planned_bytes = epl_plan_memory_bytes_peak(plan_.get(), 0);
  out.command = command_line();
  for (const Json& line : job.at("history")) {
    StepDone step;
    Evaluated evaluated;
    if (read_event(line, step)) out.earlier_steps.push_back(step);
    if (read_event(line, evaluated)) out.earlier_evaluations.push_back(evaluated);
  }
  out.earlier_seconds = job.at("earlier_seconds");
  return out;
}

// Warnings of the library stand among the run's own lines.
void Training::tell_warnings() {
  for (const std::string& message : log_.take()) tell_warning(message);
}

void Training::tell_warning(const std::string& message) {
  if (leads()) return listeners_.warning(message);
  say_error("epl: warning: %s\n", message.c_str());
}

// Which samples those are follows from this alone, so another run can hold out the same.
void Training::tell_held_out(const Json& event) {
  const std::string& file = o_.job.validation;
  const std::string line = "measuring on " + with_thousands(event.at("samples")) + (file.empty() ? " held-out " : " ") +
                           "samples" + (file.empty() ? "" : " of " + file);
  listeners_.notice(event, data_.context > 0 ? "" : line);
}

// Which rows of the file the batch is. The library has said what is wrong with it.
std::string Training::rows_of_batch() const {
  constexpr size_t most = 16;
  const Json data = parse_json(text_of(epl_dataset_describe, data_.train.get()));
  std::vector<int64_t> given = data.value("rows_given", std::vector<int64_t>());
  std::ranges::sort(given);
  std::string rows;
  for (size_t i = 0; i < std::min(most, given.size()); ++i) rows += (i ? ", " : "") + std::to_string(given[i]);
  if (given.size() > most) rows += " and " + std::to_string(given.size() - most) + " more";
  return "its batch is rows " + rows + " (counted from 0) of " + data.value("path", "");
}

// Options on which the calls depend that the processes make, and the data. What the plan says is compared where they
// meet.
void Training::compare_processes() const {
  if (!o_.job.processes.several()) return;
  agree(session_,
        {{"--steps", o_.job.steps},
         {"--checkpoint-every", o_.checkpoint_every},
         {"--keep", o_.keep},
         {"--for-training", o_.for_training},
         {"--sample-bytes", o_.sample_bytes},
         {"--evaluate-every", o_.validation.every},
         {"--evaluate-epochs", o_.validation.every_epochs},
         {"--evaluate-batches", validation_batches(o_.validation, data_)},
         {"--monitor", o_.validation.monitor},
         {"--patience", o_.validation.patience},
         {"--text", content_of(o_.job.text)},
         {"--data", content_of(o_.job.data)},
         {"--validation", content_of(o_.job.validation)}},
        &data_.train);
  if (data_.held_out) agree(session_, Json::object(), &data_.held_out);
}

// One call of the job. A job that ends early does not wait long for a process that may never come: one that hangs, for
// example. How long a save itself takes is another matter.
void Training::ask(epl_job_event& event) {
  const bool several = o_.job.processes.several();
  if (ended_ == "steps") {
    // Long enough for the others to come to the end of a step that they are in, as far as steps tell.
    constexpr double usual_seconds = 15, longest_seconds = 3600;
    if (several) end_within(static_cast<unsigned>(std::clamp(3 * call_seconds_, usual_seconds, longest_seconds)));
    const double begun = steady_seconds();
    check(epl_job_next(job_.get(), ending_->call(), &event));
    call_seconds_ = steady_seconds() - begun;
    return;
  }
  end_within(0);
  if (!several) return check(epl_job_next(job_.get(), nullptr, &event));
  epl_call_options soon = EPL_CALL_OPTIONS_INIT;
  soon.timeout_nanoseconds = 10'000'000'000;
  try {
    check(epl_job_next(job_.get(), &soon, &event));
  } catch (const ApiError& e) {
    if (e.code != EPL_ERROR_DEADLINE_EXCEEDED || e.rank >= 0) throw;
    check(epl_job_next(job_.get(), nullptr, &event));
  }
}

// The next event of the job; false where there is none. Whatever a step meets, the weights that the steps before it
// have trained stay and are saved.
bool Training::next(epl_job_event& event) {
  const bool ending = ended_ != "steps", several = o_.job.processes.several();
  try {
    ask(event);
    return true;
  } catch (const ApiError& e) {
    if (ending) {
      together_ = e.code != EPL_ERROR_DEADLINE_EXCEEDED;
      failure_ = exit_code(e.code);
      tell_warning("the checkpoint failed: " + described_failure(e, several));
      return false;
    }
    end_by(e);
    return next(event);
  }
}

// The process that leads does this alone: where it cannot, the others are told why there is no step.
void Training::tell_baselines() {
  try {
    measure_baselines(engine_, plan_, open_data(engine_, model_, o_.job), o_.job,
                      validation_batches(o_.validation, data_), listeners_, *ending_);
  } catch (const ApiError& e) {
    const std::string why = described_failure(e);
    if (o_.job.processes.several()) check(epl_session_give_up(session_.get(), why.data(), why.size(), nullptr));
    end_by(e);
  }
}

void Training::train() {
  if (leads() && data_.held_out && data_.context > 0) tell_baselines();
  epl_job_event event = EPL_JOB_EVENT_INIT;
  while (next(event)) {
    tell(event);
    if (event.kind == EPL_JOB_DONE) break;
  }
}

void Training::tell(const epl_job_event& e) {
  const std::string text(e.text, e.text_length);
  seconds_ = e.seconds;
  if (e.kind == EPL_JOB_STEP) tell_step(e);
  if (e.kind == EPL_JOB_MEASURED) tell_measured(e);
  if (e.kind == EPL_JOB_SAVED) {
    saved_step_ = e.step;
    listeners_.saved({e.step, text, e.best != 0});
  }
  // A setting of the job is an option here.
  if (e.kind == EPL_JOB_WARNING) tell_warning((text.starts_with("monitor was ") ? "--" : "") + text);
  if (e.kind == EPL_JOB_DONE && e.ended == EPL_JOB_ENDED_PATIENCE) {
    ended_ = "stopped";
    reason_ = text;
  }
  if (e.kind == EPL_JOB_DONE && e.ended == EPL_JOB_ENDED_FAILED && failure_ != 0) failure_ = exit_weights_are_saved;
  // A signal that came to another process alone, which has cancelled the step of all.
  if (e.kind == EPL_JOB_DONE && e.ended == EPL_JOB_ENDED_CANCELLED && of_another_) {
    ended_ = "interrupted";
    reason_.clear();
    failure_ = 0;
  }
}

void Training::tell_step(const epl_job_event& e) {
  StepDone out;
  out.step = e.step;
  out.epoch = e.epoch;
  out.loss = e.loss;
  out.learning_rate = e.learning_rate;
  out.gradient_norm = e.gradient_norm;
  out.seconds = e.seconds;
  out.samples = e.samples;
  out.used_bytes = e.memory_bytes;
  double skipped = 0;
  check(epl_session_get_number(session_.get(), EPL_STR("loss_scale"), &out.loss_scale));
  check(epl_session_get_number(session_.get(), EPL_STR("skipped_steps"), &skipped));
  out.skipped_steps = static_cast<int64_t>(skipped);
  tell_warnings();
  if (std::isnan(e.loss))  // of a step that is made: a mean over nothing
    tell_warning("step " + std::to_string(e.step) + ": " + rows_of_batch());
  listeners_.step(out);
}

void Training::tell_measured(const epl_job_event& e) {
  Evaluated out;
  out.step = e.step;
  out.samples = e.samples;
  out.seconds = e.seconds;
  out.best = e.best != 0;
  const Json metrics = parse_json({e.text, e.text_length});
  for (const auto& [name, value] : metrics.items())
    out.metrics.emplace_back(name, value.is_number() ? value.get<double>() : std::nan(""));
  listeners_.evaluated(out);
}

}  // namespace epl::tools
