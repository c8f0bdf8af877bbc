// How a training ends: what has ended it, and what is written and told then.
#include <cstdio>

#include "tools/commands.h"
#include "tools/export.h"
#include "tools/language_job.h"
#include "tools/report.h"
#include "tools/signals.h"
#include "tools/training.h"

namespace epl::tools {

// What has ended the job: a signal, or a failure of the step that would have come. What another process met is known
// once all have come together for their end (tell).
void Training::end_by(const ApiError& e) {
  const bool stopped = Ending::explains(e);
  ended_ = stopped ? "interrupted" : "failed";
  if (!stopped) {
    reason_ = "step " + std::to_string(epl_session_steps(session_.get()) + 1) + ": " +
              described_failure(e, o_.job.processes.several());
    failure_ = exit_code(e.code);
    of_another_ = e.code == EPL_ERROR_PEER_FAILED;
  }
  check(epl_job_end(job_.get(), stopped ? EPL_JOB_ENDED_CANCELLED : EPL_JOB_ENDED_FAILED, reason_.data(),
                    reason_.size()));
}

// A part that fails is reported and does not keep the others from being saved.
template <class F> void Training::attempt(const char* what, F&& f) {
  try {
    f();
  } catch (const ApiError& e) {
    if (failure_ == 0 || failure_ == exit_weights_are_saved) failure_ = exit_code(e.code);
    tell_warning(std::string(what) + " failed: " + described_failure(e, o_.job.processes.several()));
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

// What all processes write together, and what they tell of the weights.
void Training::write_results(JobDone& done) {
  if (!o_.job.lora.empty()) attempt("writing the adapters", [&] { export_adapters(session_, folder_.adapters()); });
  attempt("writing trained.onnx", [&] {
    const std::string said = export_onnx(session_, model_, o_.job, folder_.onnx(), o_.for_training);
    listeners_.notice({{"event", "exported"}, {"path", folder_.onnx()}, {"for_training", o_.for_training}}, said);
  });
  attempt("the hash of the weights", [&] {
    uint64_t hash = 0;
    check(epl_session_hash(session_.get(), nullptr, &hash));
    char hex[20];
    std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(hash));
    done.weights_hash = hex;
  });
  if (ended_ != "failed" && ended_ != "interrupted") attempt("the sample text", [&] { done.sample = sample(); });
}

// The newest checkpoint: of this run, also where a process that was left alone has written it, or what it went on from.
void Training::find_checkpoint_of(JobDone& done) const {
  done.resume = saved_step_ >= 0 ? folder_.path() : o_.resume;
  done.resume_step = saved_step_ >= 0 ? saved_step_ : first_step_;
  if (!o_.job.processes.several() || done.resume_step == done.step) return;
  try {
    if (describe_checkpoint(engine_, find_checkpoint(folder_.path())).at("step") != done.step) return;
    done.resume = folder_.path();
    done.resume_step = done.step;
  } catch (const ApiError&) {  // there is none
  }
}

void Training::finish() {
  end_within(0);
  JobDone done;
  if (together_) write_results(done);  // else it would wait for the same process
  done.step = epl_session_steps(session_.get());
  done.seconds = seconds_;
  done.ended = ended_;
  done.reason = reason_;
  find_checkpoint_of(done);
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
