// Predictors, and what they and sessions give as predictions.
#include "core/runtime/predictor.h"

#include "core/capi/outputs.h"
#include "core/capi/session.h"

namespace epl::capi {

Status take_outputs(const CompiledPlan& plan, epl_tensor* const* outputs, size_t count, std::vector<Tensor>& room) {
  if (count > 0) EPL_REQUIRE(outputs);
  EPL_ASSIGN(const Entry* entry, entry_argument(plan, EPL_ENTRY_PREDICT));
  if (count != entry->outputs.size())
    return invalid("output_count is ", count, ", the model has ", entry->outputs.size(), " outputs");
  room.resize(count);
  for (size_t i = 0; i < count; ++i) {
    room[i] = Tensor();
    if (outputs[i] == nullptr) continue;
    if (!alive(outputs[i])) EPL_TRY(check_pointer(outputs[i], cat("outputs[", i, "]")));
    if (outputs[i]->read_only) return invalid("outputs[", i, "] may only be read").at(entry->outputs[i].name);
    room[i] = outputs[i]->tensor;
  }
  return {};
}

Status predict_new(const std::shared_ptr<Engine>& engine, Session& session, std::span<const Tensor> inputs,
                   const CallOptions& options, epl_tensor** outputs, size_t count) {
  if (count > 0) EPL_REQUIRE(outputs);
  EPL_ASSIGN(const Entry* first, entry_argument(session.plan(), EPL_ENTRY_PREDICT));
  if (count != first->outputs.size())
    return invalid("output_count is ", count, ", the model has ", first->outputs.size(), " outputs");
  EPL_ASSIGN(const Session::Fit fit, session.fit(EntryKind::predict, inputs, options));
  std::vector<Tensor> results;
  for (const Port& port : fit.entry->outputs) {
    std::shared_ptr<const void> memory = allocate_bytes(engine, static_cast<size_t>(port.global_type.bytes()));
    const void* data = memory.get();
    results.emplace_back(port.global_type, std::move(memory), data);
  }
  EPL_TRY(session.predict(inputs, results, options));
  std::vector<std::unique_ptr<epl_tensor>> made;
  for (size_t i = 0; i < results.size(); ++i) {
    made.push_back(std::make_unique<epl_tensor>());
    made.back()->engine = engine;
    made.back()->tensor = session.results().given_output(*fit.entry, i, results[i], fit.samples);
  }
  for (size_t i = 0; i < made.size(); ++i) outputs[i] = made[i].release();
  return {};
}

namespace {

// Runs f with the predictor's session, its inputs and how it is to run.
template <class F>
Status predicting(epl_predictor* predictor, const epl_tensor* const* inputs, size_t count, const epl_call_options* call,
                  F&& f) {
  return with_caller(predictor, "predictor", [&]() -> Status {
    EPL_ASSIGN(const Call begun, begin_call(*predictor->engine, call));
    EPL_ASSIGN(Session * session, predictor->predictor->session());
    Inputs taken(predictor->inputs);
    EPL_TRY(taken.take(inputs, count));
    return f(*session, session_call(begun));
  });
}

}  // namespace
}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

epl_error* epl_predictor_create(const epl_session* session, const epl_plan* shapes, const epl_call_options* call,
                                epl_predictor** predictor) {
  return giving(predictor, "predictor", [&]() -> Result<std::unique_ptr<epl_predictor>> {
    EPL_REQUIRE(session);
    if (shapes != nullptr) EPL_REQUIRE(shapes);
    EPL_TRY(check_process(*session));
    const std::shared_ptr<Session> trained = session->session;
    auto made = std::make_unique<epl_predictor>();
    made->engine = session->engine;
    EPL_ASSIGN(const Call begun, begin_call(*made->engine, call));
    EPL_ASSIGN(made->predictor, Predictor::create(trained, shapes ? shapes->plan : nullptr, session_call(begun)));
    return made;
  });
}

void epl_predictor_destroy(epl_predictor* predictor) { destroy(predictor); }

epl_error* epl_predictor_refresh(epl_predictor* predictor, const epl_call_options* call) {
  return guarded([&] {
    return with_caller(predictor, "predictor", [&]() -> Status {
      EPL_ASSIGN(const Call begun, begin_call(*predictor->engine, call));
      return predictor->predictor->refresh(session_call(begun));
    });
  });
}

int64_t epl_predictor_steps(const epl_predictor* predictor) {
  return alive(predictor) ? predictor->predictor->steps() : 0;
}

int64_t epl_predictor_memory_bytes(const epl_predictor* predictor) {
  return alive(predictor) ? predictor->predictor->memory_bytes() : 0;
}

epl_error* epl_predictor_predict(epl_predictor* predictor, const epl_tensor* const* inputs, size_t count,
                                 const epl_call_options* call, epl_tensor** outputs, size_t output_count) {
  if (outputs != nullptr) std::fill_n(outputs, output_count, nullptr);
  return guarded([&] {
    return predicting(predictor, inputs, count, call, [&](Session& session, const CallOptions& options) {
      return predict_new(predictor->engine, session, predictor->inputs, options, outputs, output_count);
    });
  });
}

epl_error* epl_predictor_predict_into(epl_predictor* predictor, const epl_tensor* const* inputs, size_t count,
                                      const epl_call_options* call, epl_tensor* const* outputs, size_t output_count) {
  return guarded([&] {
    return predicting(predictor, inputs, count, call, [&](Session& session, const CallOptions& options) -> Status {
      EPL_TRY(take_outputs(session.plan(), outputs, output_count, predictor->outputs));
      const Status status = session.predict_into(predictor->inputs, predictor->outputs, options);
      for (Tensor& slot : predictor->outputs) slot.forget_data();
      return status;
    });
  });
}
