// Evaluation: the loss and metrics of a session over batches.
#include "core/base/json.h"
#include "core/capi/session.h"

namespace epl::capi {
namespace {

template <class F>
epl_error* with_evaluation(epl_evaluation* evaluation, F&& f, const char* call = __builtin_FUNCTION()) {
  return guarded([&] { return with_caller(evaluation, "evaluation", f); }, call);
}

// With the session as well, which a bug of ours poisons.
template <class F>
epl_error* with_both(epl_evaluation* evaluation, epl_session* session, F&& f, const char* call = __builtin_FUNCTION()) {
  return with_job(session, [&] { return with_caller(evaluation, "evaluation", f); }, call);
}

std::string describe_evaluation(const Evaluation& evaluation) {
  Json metrics = Json::array();
  for (const Evaluation::Number& one : evaluation.results()) {
    metrics.push_back({{"name", one.name}, {"value", one.value}, {"higher_is_better", one.higher_is_better}});
  }
  Json out = {{"schema", 1}};
  out["samples"] = evaluation.samples();
  out["batch"] = evaluation.batch();
  out["takes_partial"] = evaluation.takes_partial();
  out["metrics"] = metrics;
  return print_json(out, 2);
}

}  // namespace
}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

epl_error* epl_evaluation_create(const epl_plan* plan, const char* metrics, size_t metrics_length,
                                 epl_evaluation** evaluation) {
  return giving(evaluation, "evaluation", [&]() -> Result<std::unique_ptr<epl_evaluation>> {
    EPL_REQUIRE(plan);
    EPL_TEXT_ARGUMENT(metrics);
    auto made = std::make_unique<epl_evaluation>();
    made->engine = plan->engine;
    EPL_ASSIGN(made->evaluation, Evaluation::create(plan->plan, metrics_text));
    return made;
  });
}

void epl_evaluation_destroy(epl_evaluation* evaluation) { destroy(evaluation); }

epl_error* epl_evaluation_add(epl_evaluation* evaluation, epl_session* session, const epl_tensor* const* inputs,
                              size_t count, const epl_call_options* call) {
  return with_both(evaluation, session, [&]() -> Status {
    EPL_ASSIGN(const Call begun, begin_call(*session, call));
    Inputs taken(*session);
    EPL_TRY(taken.take(inputs, count));
    return evaluation->evaluation->add(*session->session, session->inputs, taken.options(begun));
  });
}

epl_error* epl_evaluation_add_dataset(epl_evaluation* evaluation, epl_session* session, epl_dataset* dataset,
                                      int64_t batches, const epl_call_options* call) {
  return with_both(evaluation, session, [&]() -> Status {
    EPL_ASSIGN(const Call begun, begin_call(*session, call));
    return with_caller(dataset, "dataset", [&] {
      return evaluation->evaluation->add(*session->session, *dataset->opened.dataset, batches, session_call(begun));
    });
  });
}

epl_error* epl_evaluation_merge(epl_evaluation* evaluation, epl_evaluation* other) {
  return with_evaluation(evaluation, [&]() -> Status {
    if (other == evaluation) return invalid("an evaluation cannot be merged into itself");
    return with_caller(other, "other", [&] { return evaluation->evaluation->merge(*other->evaluation); });
  });
}

epl_error* epl_evaluation_reset(epl_evaluation* evaluation) {
  return with_evaluation(evaluation, [&]() -> Status {
    evaluation->evaluation->reset();
    return {};
  });
}

int64_t epl_evaluation_samples(const epl_evaluation* evaluation) {
  return alive(evaluation) ? evaluation->evaluation->samples() : 0;
}

epl_error* epl_evaluation_result(epl_evaluation* evaluation, const char* name, size_t name_length, double* value) {
  return with_evaluation(evaluation, [&]() -> Status {
    EPL_REQUIRE(value);
    EPL_TEXT_ARGUMENT(name);
    EPL_ASSIGN(const Evaluation::Number found, evaluation->evaluation->result(name_text));
    *value = found.value;
    return {};
  });
}

epl_error* epl_evaluation_describe(epl_evaluation* evaluation, epl_text** json) {
  return giving_text(json, "json", [&]() -> Result<std::string> {
    std::string text;
    EPL_TRY(with_caller(evaluation, "evaluation", [&]() -> Status {
      EPL_TRY(evaluation->evaluation->usable());
      text = describe_evaluation(*evaluation->evaluation);
      return {};
    }));
    return text;
  });
}
