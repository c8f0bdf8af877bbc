// Jobs: the loop around steps.
#include "core/job/job.h"

#include <cmath>

#include "core/capi/dataset.h"
#include "core/capi/session.h"

namespace epl::capi {
namespace {

template <class F> epl_error* with_job(epl_job* job, F&& f, const char* call = __builtin_FUNCTION()) {
  return guarded([&] { return with_caller(job, "job", f); }, call);
}

// Of a dataset that may be missing.
template <class F> Status with_dataset_of(Anchor<epl_dataset>* anchor, F&& f) {
  return anchor == nullptr ? f(nullptr) : anchor->with_caller([&](epl_dataset& dataset) { return f(&dataset); });
}

// f(session, data, held_out or NULL), with all of them to itself. A bug of ours poisons the session.
template <class F> Status with_parts(epl_job& job, F&& f) {
  return job.session->with_caller([&](epl_session& session) -> Status {
    EPL_TRY(check_poison(session));
    const auto run = [&](epl_dataset& data, epl_dataset* held_out) -> Status {
      try {
        return f(session, data, held_out);
      } catch (const InternalError&) {
        session.poisoned = true;
        throw;
      }
    };
    return job.data->with_caller([&](epl_dataset& data) {
      return with_dataset_of(job.held_out.get(), [&](epl_dataset* held_out) { return run(data, held_out); });
    });
  });
}

JobParts parts_of(epl_session& session, epl_dataset& data, epl_dataset* held_out) {
  return {*session.session, training_data(&data), held_out == nullptr ? nullptr : held_out->opened.dataset.get()};
}

epl_job_event event_of(const JobEvent& e, const std::string& text) {
  return {.struct_size = sizeof(epl_job_event),
          .kind = static_cast<int32_t>(e.kind),
          .ended = static_cast<int32_t>(e.ended),
          .step = e.step,
          .steps = e.steps,
          .epoch = e.epoch,
          .samples = e.samples,
          .loss = e.loss,
          .learning_rate = e.learning_rate,
          .gradient_norm = e.gradient_norm,
          .held_out_loss = e.held_out_loss,
          .monitored = e.monitored,
          .best_value = e.best_value,
          .best_step = e.best_step,
          .best = e.best ? 1 : 0,
          .reserved = 0,
          .seconds = e.seconds,
          .seconds_left = e.seconds_left,
          .samples_per_second = e.samples_per_second,
          .memory_bytes = e.memory_bytes,
          .text = text.c_str(),
          .text_length = text.size()};
}

}  // namespace
}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

void epl_job_event_init(epl_job_event* event) {
  if (event) *event = EPL_JOB_EVENT_INIT;
}

epl_error* epl_job_create(const epl_engine* engine, const char* settings, size_t settings_length, epl_job** job) {
  return giving(job, "job", [&]() -> Result<std::unique_ptr<epl_job>> {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(settings);
    auto made = std::make_unique<epl_job>();
    made->engine = engine->engine;
    made->job = std::make_unique<Job>(engine->engine->host);
    EPL_TRY(made->job->set(settings_text));
    return made;
  });
}

void epl_job_destroy(epl_job* job) { destroy(job); }

epl_error* epl_job_set(epl_job* job, const char* key, size_t key_length, const char* value, size_t value_length) {
  return with_job(job, [&]() -> Status {
    EPL_TEXT_ARGUMENT(key);
    EPL_TEXT_ARGUMENT(value);
    return job->job->set(key_text, value_text);
  });
}

epl_error* epl_job_take_folder(epl_job* job) {
  return with_job(job, [&] { return job->job->take_folder(); });
}

epl_error* epl_job_start(epl_job* job, epl_session* session, epl_dataset* data, epl_dataset* held_out,
                         const epl_call_options* call) {
  return with_job(job, [&]() -> Status {
    EPL_REQUIRE(session);
    EPL_REQUIRE(data);
    if (held_out != nullptr) EPL_REQUIRE(held_out);
    if (held_out == data) return invalid("held_out is the dataset that is trained on; open it once more");
    if (job->job->started()) return error(Code::misuse, "this job has started already");
    EPL_TRY(check_process(*session));
    job->session = session->anchor;
    job->data = data->anchor;
    job->held_out = held_out == nullptr ? nullptr : held_out->anchor;
    return with_parts(*job, [&](epl_session& s, epl_dataset& d, epl_dataset* h) -> Status {
      EPL_ASSIGN(const Call begun, begin_call(s, call));
      EPL_TRY(bind_for(d, *s.session, EntryKind::train));
      if (h != nullptr) EPL_TRY(bind_for(*h, *s.session, EntryKind::evaluate));
      return job->job->start(parts_of(s, d, h), begun.stop);
    });
  });
}

epl_error* epl_job_next(epl_job* job, const epl_call_options* call, epl_job_event* event) {
  return with_job(job, [&]() -> Status {
    EPL_TRY(check_output(event, "epl_job_event"));
    if (!job->job->started()) return error(Code::misuse, "this job has not started; its start begins it");
    return with_parts(*job, [&](epl_session& s, epl_dataset& d, epl_dataset* h) -> Status {
      EPL_ASSIGN(const Call begun, begin_call(s, call));
      EPL_ASSIGN(JobEvent told, job->job->next(parts_of(s, d, h), begun.stop));
      job->text = to_utf8(told.text);
      return write_output(event_of(told, job->text), event, "epl_job_event");
    });
  });
}

epl_error* epl_job_end(epl_job* job, int32_t ended, const char* reason, size_t reason_length) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(job);
    EPL_TEXT_ARGUMENT(reason);
    if (ended != EPL_JOB_ENDED_STOPPED && ended != EPL_JOB_ENDED_CANCELLED && ended != EPL_JOB_ENDED_FAILED)
      return invalid("ended is ", ended, "; a host ends a job as stopped, cancelled or failed");
    return job->job->end(static_cast<JobEnd>(ended), reason_text);
  });
}

epl_error* epl_job_describe(epl_job* job, epl_text** json) {
  return giving_text(json, "json", [&]() -> Result<std::string> {
    std::string text;
    EPL_TRY(with_caller(job, "job", [&]() -> Status {
      text = print_json(job->job->describe(), 2);
      return {};
    }));
    return text;
  });
}

epl_error* epl_checkpoint_find(const epl_engine* engine, const char* path, size_t path_length, epl_text** found) {
  return giving_text(found, "found", [&]() -> Result<std::string> {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(path);
    return find_checkpoint(std::string(path_text));
  });
}
