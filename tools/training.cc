#include "tools/training.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "tools/binding.h"
#include "tools/clock.h"
#include "tools/commands.h"
#include "tools/data_notes.h"
#include "tools/export.h"
#include "tools/history.h"
#include "tools/json_lines.h"
#include "tools/language_job.h"
#include "tools/progress.h"
#include "tools/signals.h"
#include "tools/tensorboard.h"
#include "tools/text.h"

namespace epl::tools {
namespace {

// The folder that the run writes to; what would fail later is refused before anything is made.
std::string folder_of(const TrainOptions& o) {
  if (o.job.device == "sim")
    throw UsageError(
        "--device sim computes no numbers: a run would write zeros; epl plan --device sim says what it costs");
  if (!o.out.empty()) return o.out;
  return !o.resume.empty() && find_checkpoint(o.resume) != o.resume ? o.resume : "out";
}

}  // namespace

Training::Training(const TrainOptions& o)
    : o_(o),
      resume_(o.resume.empty() ? "" : find_checkpoint(o.resume)),
      engine_(make_engine(o.job, &log_)),
      folder_(engine_, folder_of(o), resume_, o.overwrite, leads()),
      model_(load_model(engine_, o.job.model)),
      data_(open_data(engine_, model_, o.job)),
      validation_(o_.validation, o_.job, plan_, session_, data_),
      report_path_(o.report.empty() ? folder_.path() + "/report.html" : o.report),
      report_(std::make_shared<ReportData>()) {
  plan_for_data();
  if (data_.held_out) bind_data(data_.held_out, plan_, EPL_ENTRY_EVALUATE, o_.job.processes, o_.job.ranks);
  session_ = make_session(engine_, plan_, o_.job.processes, o_.job.ranks, store_);
  batch_.resize(static_cast<size_t>(epl_plan_port_count(plan_.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT)));
  validation_.prepare(engine_);
  compare_processes();
  check_data();
  if (leads()) {
    folder_.check_outputs(report_path_, bytes_to_write());
    folder_.check_adapters(!o_.job.lora.empty());
  }
  if (!resume_.empty()) resume();
  ending_ = std::make_unique<Ending>(engine_);
  if (leads()) add_listeners();
}

// How many steps some epochs are follows from the batches of one, which follow from the plan where it deals files; the
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
  listeners_.add(std::make_shared<History>(folder_.history(), log_));
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
    check_labels(plan_, windows.train, path);
  } else {
    check_labels(plan_, data_.train, path);
  }
  if (data_.held_out) check_labels(plan_, data_.held_out, o_.job.validation.empty() ? path : o_.job.validation);
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
      {"loss.peel", "--no-peel"},
      {"loss.target", "--loss-target"},
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

// Options that make another run of it must be meant: they are named, or the run goes on under those it began with.
void Training::resume() {
  const Json differences = parse_json(text_of(epl_session_compare, session_.get(), resume_.data(), resume_.size(),
                                              static_cast<const epl_dataset*>(data_.train.get()), nullptr));
  std::string what, topics;
  for (const Json& one : differences) {
    const std::string topic = one.at("topic");
    const auto named = [&](const char* text) {
      return std::ranges::find(o_.resume_anyway, text) != o_.resume_anyway.end();
    };
    if (!one.at("breaks").get<bool>() || named(topic.c_str()) || named("all")) continue;
    what += (what.empty() ? "" : "; ") + difference_text(one);
    if (("," + topics + ",").find("," + topic + ",") == std::string::npos)
      topics += (topics.empty() ? "" : ",") + topic;
  }
  if (!what.empty()) {
    throw UsageError("--resume " + o_.resume + ": this would not go on with that run: " + what +
                     ". Give the options that it began with, or --resume-anyway " + topics);
  }
  // Before the processes of a job go on together: then the one that leads writes this file.
  read_history(folder_.history(), describe_checkpoint(engine_, resume_).at("step").get<int64_t>(), earlier_);
  check(epl_session_load(session_.get(), resume_.data(), resume_.size(), data_.train.get(), nullptr));
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
  watch_signals();
  started_ = last_saved_ = steady_seconds();
  const JobStart start = describe();
  earlier_seconds_ = start.earlier_seconds;
  listeners_.start(start);
  for (const std::string& warning : warnings_of(model_, plan_)) listeners_.warning(warning);
  tell_warnings();
  if (!o_.job.data.empty() && leads()) tell_data(data_.train, folder_.path(), listeners_);
  const bool comparable = !validation_.any() || tell_held_out(start.earlier_held_out);
  validation_.resume(comparable ? start.earlier_evaluations : std::vector<Evaluated>());
  if (start.first_step >= start.steps) {
    listeners_.warning("the checkpoint is of step " + std::to_string(start.first_step) + ": --steps " +
                       std::to_string(start.steps) + " leaves nothing to do");
  }
  train();
  finish();
  if (const char* why = output_failure()) {
    std::fprintf(stderr, "epl: cannot write to standard output: %s; the run itself is saved in %s\n", why,
                 folder_.path().c_str());
    if (failure_ == 0) failure_ = exit_code(EPL_ERROR_IO);
  }
  if (failure_ != 0) return failure_;
  return interrupted() ? signal_exit_code() : 0;
}

JobStart Training::describe() const {
  JobStart out = earlier_;
  out.model = o_.job.model;
  out.out = folder_.path();
  out.tensors = epl_session_state_count(session_.get(), EPL_STATE_PARAMETER);
  for (int64_t i = 0; i < out.tensors; ++i)
    out.parameters += port_of(epl_session_state_port, session_.get(), EPL_STATE_PARAMETER, i).elements();
  out.first_step = epl_session_steps(session_.get());
  out.steps = o_.job.steps;
  out.batch = data_.batch;
  out.epoch_samples = epl_dataset_batches(data_.train.get()) * data_.batch;
  out.units_per_step = data_.batch * std::max<int64_t>(data_.context, 1);
  out.unit = data_.context > 0 ? "tokens" : "samples";
  out.planned_bytes = epl_plan_memory_bytes_peak(plan_.get(), 0);
  out.command = command_line();
  if (!out.earlier_steps.empty()) out.earlier_seconds = out.earlier_steps.back().seconds;
  return out;
}

// Warnings of the library stand among the run's own lines.
void Training::tell_warnings() {
  for (const std::string& message : log_.take()) tell_warning(message);
}

void Training::tell_warning(const std::string& message) {
  if (leads()) return listeners_.warning(message);
  std::fprintf(stderr, "epl: warning: %s\n", printable(message).c_str());
}

double Training::seconds() const { return earlier_seconds_ + steady_seconds() - started_; }

// What a process does alone, between the calls that all make. Where it cannot, the others are told why there is no next
// one.
template <class F> void Training::alone(F&& f) {
  try {
    f();
  } catch (const ApiError& e) {
    const std::string why = described_failure(e);
    if (o_.job.processes.several()) check(epl_session_give_up(session_.get(), why.data(), why.size(), nullptr));
    throw;
  }
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

// The next batch. Each process reads its own samples.
void Training::read_batch() {
  alone([&] { check(epl_dataset_next(data_.train.get(), ending_->call(), batch_.data(), batch_.size())); });
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
         {"--evaluate-batches", validation_.batches()},
         {"--monitor", validation_.monitor()},
         {"--patience", o_.validation.patience},
         {"--text", content_of(o_.job.text)},
         {"--data", content_of(o_.job.data)},
         {"--validation", content_of(o_.job.validation)}},
        &data_.train);
  if (data_.held_out) agree(session_, Json::object(), &data_.held_out);
}

StepDone Training::take_step() {
  const int64_t before = epl_dataset_position(data_.train.get()), steps = epl_session_steps(session_.get());
  read_batch();
  epl_metrics metrics = EPL_METRICS_INIT;
  try {
    check(epl_session_step(session_.get(), batch_.data(), batch_.size(), ending_->call(), &metrics));
  } catch (const ApiError& e) {
    // Of a step that was given up the run goes on with the same batch. It may also have been made before a peer was
    // lost.
    const bool given_up = e.code == EPL_ERROR_CANCELLED || e.code == EPL_ERROR_PEER_FAILED;
    if (given_up && epl_session_steps(session_.get()) == steps) check(epl_dataset_seek(data_.train.get(), before));
    throw;
  }
  if (std::isnan(metrics.loss)) {  // of a step that is made: a mean over nothing
    tell_warnings();
    tell_warning("step " + std::to_string(metrics.step) + ": " + rows_of_batch());
  }
  const int64_t position = epl_dataset_position(data_.train.get());
  StepDone out;
  out.step = metrics.step;
  out.epoch = static_cast<double>(position) / static_cast<double>(epl_dataset_batches(data_.train.get()));
  out.loss = metrics.loss;
  out.learning_rate = metrics.learning_rate;
  out.gradient_norm = metrics.gradient_norm;
  out.seconds = seconds();
  out.samples = position * data_.batch;
  out.used_bytes = epl_session_memory_bytes_peak(session_.get(), 0);
  return out;
}

// Whatever a step meets, the weights that the steps before it have trained stay and are saved by `finish`.
void Training::train() {
  try {
    if (leads() && validation_.any() && data_.context > 0) {
      alone([&] {
        measure_baselines(engine_, plan_, open_data(engine_, model_, o_.job), o_.job, validation_.batches(),
                          listeners_);
      });
    }
    while (ended_ == "steps" && epl_session_steps(session_.get()) < o_.job.steps) {
      const StepDone step = take_step();
      listeners_.step(step);
      tell_warnings();
      const bool last = step.step >= o_.job.steps;
      if (!last && validation_.due(step.step, o_.job.steps)) evaluate(true);
      const bool due = o_.checkpoint_every > 0 ? step.step % o_.checkpoint_every == 0
                                               : o_.checkpoint_minutes > 0 && !o_.job.processes.several() &&
                                                     steady_seconds() - last_saved_ > 60 * o_.checkpoint_minutes;
      if (due && !last) save_on_the_way(false);
      reason_ = validation_.wants_stop();
      if (reason_.empty()) reason_ = listeners_.wants_stop();
      if (!reason_.empty()) ended_ = "stopped";
    }
    const int64_t end = epl_session_steps(session_.get());
    if (validation_.any() && measured_step_ != end) evaluate(validation_.due(end, o_.job.steps));
  } catch (const ApiError& e) {
    if (Ending::explains(e)) {
      ended_ = "interrupted";
      return;
    }
    ended_ = "failed";
    reason_ = "step " + std::to_string(epl_session_steps(session_.get()) + 1) + ": " + described_failure(e);
    failure_ = exit_code(e.code);
  }
}

// Which samples those are follows from this alone, so another run can hold out the same. `earlier`: what a run that
// goes on was measured on and by. False where its numbers are of other data, so that they say nothing about which
// weights are best.
bool Training::tell_held_out(const Json& earlier) {
  const int64_t samples = epl_dataset_samples(data_.held_out.get());
  Json event = {{"event", "held_out"}, {"samples", samples}};
  std::string line = "measuring on " + with_thousands(samples) + (o_.job.validation.empty() ? " held-out " : " ") +
                     (data_.context > 0 ? "windows" : "samples");
  if (!o_.job.validation.empty()) {
    event["file"] = o_.job.validation;
    line += " of " + o_.job.validation;
  } else {
    event["share"] = data_.context > 0 ? o_.job.text_held_out() : *o_.job.held_out;
    event["drawn"] = data_.context > 0 ? "the end of the text" : "by split_seed 0";
  }
  event["batches"] = validation_.batches();
  bool same = true;
  for (const auto& [key, value] : earlier.items()) {
    if (key == "monitor") continue;
    const Json now = event.value(key, Json());
    if (now == value) continue;
    same = false;
    listeners_.warning("this run was measured on other data until now: " + key + " was " + print_json(value) +
                       ", now it is " + (now.is_null() ? "not given" : print_json(now)) +
                       "; which weights are the best, and --patience, begin anew");
  }
  event["monitor"] = validation_.monitor();
  if (const std::string before = earlier.value("monitor", validation_.monitor()); before != validation_.monitor()) {
    listeners_.warning("--monitor was " + before + ", now it is " + validation_.monitor());
  }
  listeners_.notice(event, data_.context > 0 ? "" : line);
  return same;
}

void Training::evaluate(bool counts) {
  Evaluated result = validation_.measure(counts, *ending_);
  measured_step_ = result.step;
  result.seconds = seconds();
  listeners_.evaluated(result);
  if (result.best) save_on_the_way(true);
}

void Training::save_checkpoint(bool best) {
  const int64_t step = epl_session_steps(session_.get());
  const std::string path = folder_.step_folder(step);
  if (saved_step_ != step)
    check(epl_session_save(session_.get(), path.data(), path.size(), data_.train.get(), nullptr));
  if (saved_step_ == step && !best) return;
  saved_step_ = step;
  last_saved_ = steady_seconds();
  if (leads()) folder_.saved(step, best, o_.keep);
  listeners_.saved({step, path, best});
}

// A disk that is full for a moment must not end a run that goes well.
void Training::save_on_the_way(bool best) {
  try {
    save_checkpoint(best);
  } catch (const ApiError& e) {
    last_saved_ = steady_seconds();
    tell_warning("no checkpoint after step " + std::to_string(epl_session_steps(session_.get())) + ": " +
                 described_failure(e) + "; training goes on");
  }
}

// A part that fails is reported and does not keep the others from being saved.
template <class F> void Training::attempt(const char* what, F&& f) {
  try {
    f();
  } catch (const ApiError& e) {
    if (failure_ == 0 || failure_ == exit_weights_are_saved) failure_ = exit_code(e.code);
    tell_warning(std::string(what) + " failed: " + described_failure(e));
  }
}

// Text that the model writes; none where that was interrupted.
std::string Training::sample() {
  try {
    return write_sample(engine_, plan_, session_, data_, o_.job, o_.sample_bytes, o_.temperature, *ending_);
  } catch (const ApiError& e) {
    if (!Ending::explains(e)) throw;
    return "";
  }
}

void Training::finish() {
  const double spent = seconds();
  const int before = failure_;
  attempt("the checkpoint", [&] {
    save_checkpoint(false);
    if (before != 0) failure_ = exit_weights_are_saved;
  });
  if (!o_.job.lora.empty()) attempt("writing the adapters", [&] { export_adapters(session_, folder_.adapters()); });
  attempt("writing trained.onnx", [&] {
    const std::string said = export_onnx(session_, model_, o_.job, folder_.onnx(), o_.for_training);
    listeners_.notice({{"event", "exported"}, {"path", folder_.onnx()}, {"for_training", o_.for_training}}, said);
  });
  JobDone done;
  done.step = epl_session_steps(session_.get());
  done.seconds = spent;
  done.ended = ended_;
  done.reason = reason_;
  done.resume = folder_.path();
  attempt("the hash of the weights", [&] {
    uint64_t hash = 0;
    check(epl_session_hash(session_.get(), nullptr, &hash));
    char hex[20];
    std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(hash));
    done.weights_hash = hex;
  });
  if (ended_ != "failed" && ended_ != "interrupted") attempt("the sample text", [&] { done.sample = sample(); });
  tell_warnings();
  if (!leads()) return;
  report_->done(done);  // before the others hear of the end the page is there
  attempt("the report", [&] {
    const Json memory = parse_json(text_of(epl_plan_describe, plan_.get(), "memory", size_t{6}, nullptr));
    write_file(report_path_, render_report(report_->report(memory, job_facts(o_.job))));
  });
  listeners_.done(done);
  tell_warnings();  // of the listeners' own files
}

}  // namespace epl::tools
