#include "tools/training.h"

#include <sys/stat.h>

#include <chrono>

#include "tools/commands.h"
#include "tools/export.h"
#include "tools/json_lines.h"
#include "tools/language_job.h"
#include "tools/progress.h"
#include "tools/tensorboard.h"

namespace epl::tools {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void make_folder(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    ::mkdir(path.substr(0, slash).c_str(), 0777);
    if (slash == std::string::npos) break;
  }
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) throw ApiError(EPL_ERROR_IO, "cannot make the folder " + path, path);
}

}  // namespace

Training::Training(const TrainOptions& o)
    : o_(o), engine_(make_engine(o.job)), model_(load_model(engine_, o.job.model)), data_(open_data(engine_, model_, o.job)),
      validation_(o.validation, plan_, session_, data_), report_(std::make_shared<ReportData>()) {
  Trainer trainer = make_trainer(engine_, o.job);
  bind_inputs(trainer, model_, data_.train);
  plan_ = make_plan(model_, trainer, make_strategy(engine_, o.job), o.job);
  for (Dataset* dataset : {&data_.train, &data_.held_out}) {
    if (*dataset) check(epl_dataset_bind(dataset->get(), plan_.get(), EPL_ENTRY_TRAIN));
  }
  session_ = make<Session>(epl_session_create, plan_.get(), static_cast<const epl_session_options*>(nullptr));
  batch_.resize(static_cast<size_t>(epl_plan_port_count(plan_.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT)));
  if (!o.resume.empty()) check(epl_session_load(session_.get(), o.resume.data(), o.resume.size(), data_.train.get()));
  cancel_ = make<Cancel>(epl_cancel_create, engine_.get());
  listeners_.add(report_);
  if (o.job.json) {
    listeners_.add(std::make_shared<JsonLines>());
  } else {
    listeners_.add(std::make_shared<Progress>());
  }
}

int Training::run() {
  make_folder(o_.out);
  if (o_.tensorboard) listeners_.add(std::make_shared<TensorBoard>(o_.out));
  watch_interrupts();
  started_ = now();
  listeners_.start(describe());
  if (validation_.any() && data_.context > 0) measure_baselines(engine_, plan_, data_, o_.job, validation_.batches(), listeners_);
  train();
  if (validation_.any()) evaluate();
  finish();
  return interrupted() ? 130 : 0;
}

JobStart Training::describe() const {
  JobStart out;
  out.model = o_.job.model;
  out.out = o_.out;
  out.tensors = epl_session_state_count(session_.get(), EPL_STATE_PARAMETER);
  for (int64_t i = 0; i < out.tensors; ++i) out.parameters += port_of(epl_session_state_port, session_.get(), EPL_STATE_PARAMETER, i).elements();
  out.first_step = epl_session_steps(session_.get());
  out.steps = o_.job.steps;
  out.batch = data_.batch;
  out.epoch_samples = epl_dataset_batches(data_.train.get()) * data_.batch;
  out.units_per_step = data_.batch * std::max<int64_t>(data_.context, 1);
  out.unit = data_.context > 0 ? "tokens" : "samples";
  out.planned_bytes = epl_plan_memory_bytes_peak(plan_.get(), 0);
  out.command = command_line();
  return out;
}

double Training::seconds() const { return now() - started_; }

StepDone Training::take_step() {
  check(epl_dataset_next(data_.train.get(), batch_.data(), batch_.size()));
  epl_call_options call = EPL_CALL_OPTIONS_INIT;
  call.cancel = cancel_.get();
  epl_metrics metrics = EPL_METRICS_INIT;
  check(epl_session_step(session_.get(), batch_.data(), batch_.size(), &call, &metrics));
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

void Training::train() {
  while (epl_session_steps(session_.get()) < o_.job.steps) {
    if (interrupted()) {
      ended_ = "interrupted";
      break;
    }
    const StepDone step = take_step();
    listeners_.step(step);
    if (step.step != o_.job.steps && validation_.due(step.step, o_.job.steps)) evaluate();
    if (o_.checkpoint_every > 0 && step.step % o_.checkpoint_every == 0) save_checkpoint();
    reason_ = listeners_.wants_stop();
    if (!reason_.empty()) {
      ended_ = "stopped";
      break;
    }
  }
  train_seconds_ = seconds();
}

void Training::evaluate() {
  Evaluated result = validation_.measure();
  result.seconds = seconds();
  listeners_.evaluated(result);
}

void Training::save_checkpoint() {
  const std::string path = o_.out + "/checkpoint";
  check(epl_session_save(session_.get(), path.data(), path.size(), data_.train.get()));
  listeners_.saved({epl_session_steps(session_.get()), path});
}

void Training::finish() {
  save_checkpoint();
  const std::string onnx = o_.out + "/trained.onnx";
  const std::string said = export_onnx(session_, model_, o_.job, onnx, o_.for_training);
  listeners_.notice({{"event", "exported"}, {"path", onnx}, {"for_training", o_.for_training}}, said);
  uint64_t hash = 0;
  check(epl_session_hash(session_.get(), &hash));
  char hex[20];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(hash));
  JobDone done;
  done.step = epl_session_steps(session_.get());
  done.seconds = train_seconds_;
  done.weights_hash = hex;
  done.ended = ended_;
  done.reason = reason_;
  done.resume = o_.out + "/checkpoint";
  done.sample = write_sample(engine_, plan_, session_, data_, o_.job.seed, o_.sample_bytes, o_.temperature);
  report_->done(done);   // before the others hear of the end the page is there
  const Json memory = parse_json(text_of(epl_plan_describe, plan_.get(), "memory", size_t{6}));
  write_file(o_.report.empty() ? o_.out + "/report.html" : o_.report, render_report(report_->report(memory, job_facts(o_.job))));
  listeners_.done(done);
}

}  // namespace epl::tools
