#include "core/runtime/rehearsal.h"

#include "core/runtime/session.h"

namespace epl {

Result<Rehearsal> rehearse(const Host& host, const std::shared_ptr<const CompiledPlan>& plan) {
  Rehearsal rehearsal;
  EPL_ASSIGN(auto device, open_device("sim", host, {.stands_for = plan->device()}));
  rehearsal.device = device->description();
  EPL_ASSIGN(auto session, Session::create(host, plan, {.device = device}));
  const Entry& entry = plan->entries().front();
  std::vector<Tensor> inputs, outputs(entry.outputs.size());
  for (const Port& port : entry.inputs) inputs.emplace_back(port.global_type);
  session->record(1);
  StepMetrics metrics;
  EPL_TRY(entry.kind == EntryKind::train ? session->step(inputs, metrics) : session->run(entry.kind, inputs, outputs));
  rehearsal.trace = session->trace();
  return rehearsal;
}

}  // namespace epl
