#include "core/runtime/rehearsal.h"

#include "core/runtime/session.h"

namespace epl {
namespace {

// Of an entry that trains, or of the first.
Result<StepTrace> trace_of(Session& session, const Entry& entry, size_t index) {
  std::vector<Tensor> inputs, outputs(entry.outputs.size());
  for (const Port& port : entry.inputs) inputs.emplace_back(port.global_type);
  session.record(1, index);
  StepMetrics metrics;
  EPL_TRY(entry.kind == EntryKind::train ? session.step(inputs, metrics) : session.run(entry.kind, inputs, outputs));
  return session.trace();
}

}  // namespace

Result<Rehearsal> rehearse(const Host& host, const std::shared_ptr<const CompiledPlan>& plan) {
  Rehearsal rehearsal;
  EPL_ASSIGN(auto device, open_device("sim", host, {.stands_for = plan->device()}));
  rehearsal.device = device->description();
  EPL_ASSIGN(auto session, Session::create(host, plan, {.device = device}));
  EPL_ASSIGN(rehearsal.trace, trace_of(*session, plan->entries().front(), 0));
  return rehearsal;
}

Result<double> seconds_of_step(const Host& host, const std::shared_ptr<const CompiledPlan>& plan) {
  EPL_ASSIGN(auto device, open_device("sim", host, {.stands_for = plan->device()}));
  EPL_ASSIGN(auto session, Session::create(host, plan, {.device = device}));
  double seconds = 0;
  for (size_t i = 0; i < plan->entries().size(); ++i) {
    if (plan->entries()[i].kind != EntryKind::train) continue;
    EPL_ASSIGN(const StepTrace trace, trace_of(*session, plan->entries()[i], i));
    seconds += trace.end() - trace.begin();
  }
  return seconds / plan->shapes();
}

}  // namespace epl
