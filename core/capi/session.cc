// Sessions: steps, evaluation, prediction. What is kept and given out is in session_state.cc.
#include "core/capi/session.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/capi/outputs.h"
#include "core/capi/store.h"
#include "core/compile/plan_memory.h"
#include "core/compile/trace_file.h"
#include "core/runtime/session_checkpoint.h"

namespace epl::capi {
namespace {

// Each takes room for every instruction.
constexpr int64_t max_recorded_steps = 10000;

// A plan says what its session needs, so that one that cannot fit is not begun.
Status check_budget(const epl_plan& plan, const SessionOptions& options) {
  const CompiledPlan& p = *plan.plan;
  const MemoryBudget& budget = *plan.engine->host.budget;
  const int ranks = p.options().ranks, count = options.ranks > 0 ? options.ranks : ranks;
  const bool exist = options.first_rank >= 0 && options.first_rank <= ranks - count;
  if (budget.bytes == 0 || !exist || !p.device()->executes()) return {};
  int64_t wanted = 0;
  for (int r = options.first_rank; r < options.first_rank + count; ++r)
    wanted += PlanMemory(p).peak(p.virtual_device_of_rank(r));
  const uint64_t in_use = budget.in_use.load(std::memory_order_relaxed);
  if (in_use <= budget.bytes && static_cast<uint64_t>(wanted) <= budget.bytes - in_use) return {};
  return error(Code::out_of_memory, "the plan's ", count == 1 ? "rank needs " : cat(count, " ranks need "),
               grouped(wanted), " bytes; of the engine's ", grouped(static_cast<int64_t>(budget.bytes)), " bytes ",
               grouped(static_cast<int64_t>(in_use)), " are in use");
}

// A call that gives metrics, if the caller has a place for them, which is looked at before anything runs.
template <class F>
Status with_metrics(epl_session& session, const epl_call_options* call, epl_metrics* metrics, F&& f) {
  if (metrics != nullptr) EPL_TRY(check_output(metrics, "epl_metrics"));
  EPL_ASSIGN(const Call begun, begin_call(session, call));
  epl_metrics out = EPL_METRICS_INIT;
  EPL_TRY(f(begun, out));
  return metrics == nullptr ? Status() : write_output(out, metrics, "epl_metrics");
}

}  // namespace

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

CallOptions session_call(const Call& call) {
  return {.stop = call.stop, .samples = call.samples, .stream = call.stream};
}

namespace {

// What a step or a part of one gave, by `f(metrics)`.
template <class F> Status take_step(epl_session& session, epl_metrics& metrics, F&& f) {
  StepMetrics step;
  EPL_TRY(f(step));
  EPL_TRY(step.skipped);
  metrics = {sizeof metrics,     session.session->host_state().steps_done(),
             step.loss,          step.gradient_norm,
             step.learning_rate, nanoseconds(step.seconds)};
  return {};
}

}  // namespace

Status step_session(epl_session& session, const CallOptions& options, epl_metrics& metrics) {
  return take_step(session, metrics,
                   [&](StepMetrics& step) { return session.session->step(session.inputs, step, options); });
}

Status evaluate_session(epl_session& session, const CallOptions& options, double started, epl_metrics& metrics) {
  double loss = 0;
  EPL_TRY(session.session->evaluate(session.inputs, loss, options));
  metrics = {sizeof metrics,
             session.session->host_state().steps_done(),
             loss,
             -1,
             0,
             nanoseconds(session.engine->host.seconds() - started)};
  return {};
}

}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

void epl_session_options_init(epl_session_options* options) {
  if (options) *options = EPL_SESSION_OPTIONS_INIT;
}
void epl_metrics_init(epl_metrics* metrics) {
  if (metrics) *metrics = EPL_METRICS_INIT;
}

epl_error* epl_session_create(const epl_plan* plan, const epl_session_options* options, const epl_call_options* call,
                              epl_session** session) {
  return giving(session, "session", [&]() -> Result<std::unique_ptr<epl_session>> {
    EPL_REQUIRE(plan);
    epl_session_options known = EPL_SESSION_OPTIONS_INIT;
    EPL_TRY(copy_options(options, known, "epl_session_options"));
    EPL_ASSIGN(const Call begun, begin_call(*plan->engine, call));
    auto made = std::make_unique<epl_session>();
    made->engine = plan->engine;
    EPL_ASSIGN(SessionOptions here, session_options(known, *plan, begun.stop));
    EPL_TRY(check_budget(*plan, here));
    here.stop = begun.stop;
    EPL_ASSIGN(made->session, Session::create(plan->engine->host, plan->plan, here));
    for (int kind = 0; kind <= EPL_STATE_GRADIENT; ++kind)
      made->names[kind] = state_names(*plan->plan, static_cast<StateKind>(kind));
    log(plan->engine->host, LogLevel::info, "session: ", plan->plan->options().ranks,
        plan->plan->options().ranks == 1 ? " rank" : " ranks", ", ", PlanMemory(*plan->plan).peak(),
        " bytes each at their peak");
    made->of_callbacks.userdata = known.userdata;  // last: where this fails, they are still the caller's
    made->of_callbacks.destroy = known.destroy;
    return made;
  });
}

void epl_session_destroy(epl_session* session) { destroy(session); }

epl_error* epl_session_step(epl_session* session, const epl_tensor* const* inputs, size_t count,
                            const epl_call_options* call, epl_metrics* metrics) {
  return with_job(session, [&] {
    return with_metrics(*session, call, metrics, [&](const Call& begun, epl_metrics& out) -> Status {
      Inputs taken(*session);
      EPL_TRY(taken.take(inputs, count));
      return step_session(*session, taken.options(begun), out);
    });
  });
}

epl_error* epl_session_gradients(epl_session* session, const epl_tensor* const* inputs, size_t count,
                                 const epl_call_options* call, epl_metrics* metrics) {
  return with_job(session, [&] {
    return with_metrics(*session, call, metrics, [&](const Call& begun, epl_metrics& out) -> Status {
      Inputs taken(*session);
      EPL_TRY(taken.take(inputs, count));
      return take_step(*session, out, [&](StepMetrics& step) {
        return session->session->gradients(session->inputs, step, taken.options(begun));
      });
    });
  });
}

epl_error* epl_session_apply(epl_session* session, const epl_call_options* call, epl_metrics* metrics) {
  return with_job(session, [&] {
    return with_metrics(*session, call, metrics, [&](const Call& begun, epl_metrics& out) {
      return take_step(*session, out,
                       [&](StepMetrics& step) { return session->session->apply(step, session_call(begun)); });
    });
  });
}

epl_error* epl_session_evaluate(epl_session* session, const epl_tensor* const* inputs, size_t count,
                                const epl_call_options* call, epl_metrics* metrics) {
  return with_job(session, [&] {
    return with_metrics(*session, call, metrics, [&](const Call& begun, epl_metrics& out) -> Status {
      Inputs taken(*session);
      EPL_TRY(taken.take(inputs, count));
      return evaluate_session(*session, taken.options(begun), begun.started, out);
    });
  });
}

epl_error* epl_session_predict(epl_session* session, const epl_tensor* const* inputs, size_t count,
                               const epl_call_options* call, epl_tensor** outputs, size_t output_count) {
  if (outputs != nullptr) std::fill_n(outputs, output_count, nullptr);
  return with_job(session, [&]() -> Status {
    EPL_ASSIGN(const Call begun, begin_call(*session, call));
    Inputs taken(*session);
    EPL_TRY(taken.take(inputs, count));
    return predict_new(session->engine, *session->session, session->inputs, taken.options(begun), outputs,
                       output_count);
  });
}

epl_error* epl_session_predict_into(epl_session* session, const epl_tensor* const* inputs, size_t count,
                                    const epl_call_options* call, epl_tensor* const* outputs, size_t output_count) {
  return with_job(session, [&]() -> Status {
    EPL_ASSIGN(const Call begun, begin_call(*session, call));
    Inputs taken(*session);
    EPL_TRY(taken.take(inputs, count));
    EPL_TRY(take_outputs(session->session->plan(), outputs, output_count, session->outputs));
    const Status status = session->session->predict_into(session->inputs, session->outputs, taken.options(begun));
    for (Tensor& slot : session->outputs) slot.forget_data();
    return status;
  });
}

epl_error* epl_session_output(epl_session* session, int32_t entry, const char* name, size_t name_length,
                              epl_tensor** output) {
  return giving(output, "output", [&]() -> Result<std::unique_ptr<epl_tensor>> {
    auto made = std::make_unique<epl_tensor>();
    EPL_TRY(in_session(session, [&]() -> Status {
      EPL_TEXT_ARGUMENT(name);
      EPL_ASSIGN(const Entry* found, entry_argument(session->session->plan(), entry));
      EPL_ASSIGN(made->tensor, session->session->results().output(found->kind, name_text));
      made->engine = session->engine;
      return {};
    }));
    return made;
  });
}

epl_error* epl_session_metric(epl_session* session, const char* name, size_t name_length, double* value) {
  return with_session(session, [&]() -> Status {
    EPL_REQUIRE(value);
    EPL_TEXT_ARGUMENT(name);
    EPL_ASSIGN(*value, session->session->results().step_scalar(name_text));
    return {};
  });
}

epl_error* epl_session_set_number(epl_session* session, const char* name, size_t name_length, double value) {
  return with_session(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(name);
    return session->session->host_state().set_number(name_text, value);
  });
}

epl_error* epl_session_get_number(epl_session* session, const char* name, size_t name_length, double* value) {
  return with_session(session, [&]() -> Status {
    EPL_REQUIRE(value);
    EPL_TEXT_ARGUMENT(name);
    EPL_ASSIGN(*value, session->session->host_state().number(name_text));
    return {};
  });
}

epl_error* epl_session_observe(epl_session* session, double value, int32_t higher_is_better) {
  return with_session(session, [&] { return session->session->host_state().observe(value, higher_is_better != 0); });
}

epl_error* epl_session_record(epl_session* session, int64_t steps) {
  return with_session(session, [&]() -> Status {
    if (steps < 0 || steps > max_recorded_steps)
      return invalid("steps is ", steps, "; 0 to ", max_recorded_steps, " can be recorded");
    session->session->record(steps);
    return {};
  });
}

epl_error* epl_session_trace(epl_session* session, epl_text** json) {
  return giving_text(json, "json", [&]() -> Result<std::string> {
    std::string trace;
    EPL_TRY(in_session(session, [&]() -> Status {
      const CompiledPlan& plan = session->session->plan();
      trace = print_trace(plan, session->session->trace(), plan.device()->description());
      return {};
    }));
    return trace;
  });
}

epl_error* epl_session_give_up(epl_session* session, const char* reason, size_t reason_length,
                               const epl_call_options* call) {
  return with_session(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(reason);
    EPL_ASSIGN(const Call begun, begin_call(*session->engine, call));
    static_cast<void>(session->session->world().give_up(Status(Code::peer_failed, std::string(reason_text))));
    return {};
  });
}

int64_t epl_session_steps(const epl_session* session) {
  return alive(session) ? session->session->host_state().progress().steps : 0;
}

void epl_session_progress(const epl_session* session, epl_metrics* metrics) {
  if (!alive(session) || metrics == nullptr) return;
  const Progress::Numbers now = session->session->host_state().progress();
  const epl_metrics out = {sizeof out,        now.steps,         now.loss,
                           now.gradient_norm, now.learning_rate, nanoseconds(now.seconds)};
  put_output(&out, metrics, sizeof out);
}

int64_t epl_session_memory_bytes_peak(const epl_session* session, int64_t rank) {
  if (!alive(session) || rank < 0 || rank >= session->session->plan().options().ranks) return -1;
  return session->session->memory_bytes_used_by(static_cast<int>(rank));
}
