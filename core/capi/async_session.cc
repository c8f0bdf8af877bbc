// Steps, evaluations and predictions that go on after their call.
#include "core/capi/async.h"
#include "core/capi/outputs.h"
#include "core/capi/session.h"

namespace epl::capi {
namespace {

// Everything that the work needs until its end; the session is its own for so long.
struct AsyncCall {
  std::unique_ptr<Caller<epl_session>> caller;
  std::unique_ptr<Inputs> inputs;
  std::vector<Tensor> outputs;
  Call call;
  std::shared_ptr<Event> event;

  template <class Work> void run(epl_session& session, const Work& work) {
    epl_metrics metrics = EPL_METRICS_INIT;
    Status status;
    try {
      status = session.session->world().make_call(
          [&] { return unless_poisoned(session, [&] { return work(*this, metrics); }); });
    } catch (...) {
      status = current_exception_status();
    }
    // Whoever is told that it is done finds the session free.
    inputs.reset();
    outputs.clear();
    caller.reset();
    event->complete(std::move(status), metrics);
  }
};

// `prepare` and then `work`, with the job; what `prepare` refuses is the call's own error.
template <class Prepare, class Work>
epl_error* begin(epl_session* session, const epl_tensor* const* inputs, size_t count, const epl_call_options* call,
                 epl_event** event, Prepare&& prepare, Work work, const char* name = __builtin_FUNCTION()) {
  return giving(
      event, "event",
      [&]() -> Result<std::unique_ptr<epl_event>> {
        EPL_REQUIRE(session);
        auto made = std::make_unique<epl_event>();
        made->engine = session->engine;
        auto job = std::make_shared<AsyncCall>();
        job->event = made->event;
        job->caller = std::make_unique<Caller<epl_session>>(*session);
        EPL_TRY(job->caller->status());
        const Status begun = session->session->world().make_call([&]() -> Status {
          EPL_TRY(check_poison(*session));
          EPL_ASSIGN(job->call, begin_call(*session, call));
          if (job->call.stream == 2)
            return unsupported("stream is 2, the default stream of a thread, and another thread makes this call");
          job->inputs = std::make_unique<Inputs>(*session);
          EPL_TRY(job->inputs->take(inputs, count));
          EPL_TRY(prepare(*job));
          if (!session->worker) {
            EPL_ASSIGN(session->worker, Worker::start("epl-async"));
          }
          made->event->done_by(session->worker->thread(), name);
          std::function<void()> run = [job, session, work] { job->run(*session, work); };
          session->worker->give(std::move(run));
          return {};
        });
        if (!begun.ok()) return begun;
        return made;
      },
      name);
}

Status nothing(AsyncCall&) { return {}; }

}  // namespace
}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

epl_error* epl_session_step_async(epl_session* session, const epl_tensor* const* inputs, size_t count,
                                  const epl_call_options* call, epl_event** event) {
  return begin(session, inputs, count, call, event, nothing, [session](AsyncCall& job, epl_metrics& metrics) {
    return step_session(*session, session_call(job.call), metrics);
  });
}

epl_error* epl_session_evaluate_async(epl_session* session, const epl_tensor* const* inputs, size_t count,
                                      const epl_call_options* call, epl_event** event) {
  return begin(session, inputs, count, call, event, nothing, [session](AsyncCall& job, epl_metrics& metrics) {
    return evaluate_session(*session, session_call(job.call), job.call.started, metrics);
  });
}

epl_error* epl_session_predict_async(epl_session* session, const epl_tensor* const* inputs, size_t count,
                                     const epl_call_options* call, epl_tensor* const* outputs, size_t output_count,
                                     epl_event** event) {
  const auto take = [&](AsyncCall& job) -> Status {
    return take_outputs(session->session->plan(), outputs, output_count, job.outputs);
  };
  return begin(session, inputs, count, call, event, take, [session](AsyncCall& job, epl_metrics& metrics) -> Status {
    EPL_TRY(session->session->predict_into(session->inputs, job.outputs, session_call(job.call)));
    metrics.step = session->session->host_state().steps_done();
    metrics.nanoseconds = nanoseconds(session->engine->host.seconds() - job.call.started);
    return {};
  });
}
