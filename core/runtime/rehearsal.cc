#include "core/runtime/rehearsal.h"

#include <algorithm>

#include "core/runtime/session.h"

namespace epl {
namespace {

struct SimulatedPlan {
  std::shared_ptr<Device> device;
  std::unique_ptr<Session> session;
};

Result<SimulatedPlan> simulated(const Host& host, const std::shared_ptr<const CompiledPlan>& plan,
                                int64_t represented_from = very_many) {
  SimulatedPlan made;
  const std::vector<int> represented =
      plan->options().ranks >= represented_from ? representatives_of(*plan) : std::vector<int>();
  if (represented.empty() && plan->options().ranks > most_local_ranks)
    return unsupported("a step of ", plan->options().ranks, " ranks cannot be simulated: of more than ",
                       most_local_ranks,
                       " one rank of each stage stands for all, and here devices or numbers of ranks of stages differ");
  EPL_ASSIGN(made.device, open_device("sim", host, {.stands_for = plan->device(), .represented = represented}));
  EPL_ASSIGN(made.session, Session::create(host, plan, {.device = made.device, .represented = represented}));
  return made;
}

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

std::vector<int> representatives_of(const CompiledPlan& plan) {
  if (!plan.device()->machine().kinds.empty()) return {};
  std::vector<int> first;
  const size_t ranks = plan.mesh(0).device.ranks.size();
  for (int v = 0; v < plan.virtual_devices(); ++v) {
    if (plan.mesh(v).device.ranks.size() != ranks) return {};
    first.push_back(plan.mesh(v).device.ranks.front());
  }
  // What these get has to come from one of them.
  for (const Entry& entry : plan.entries()) {
    for (int v = 0; v < plan.virtual_devices(); ++v) {
      LocalRank rank;
      rank.number = first[static_cast<size_t>(v)];
      rank.virtual_device = v;
      for (const ProgramGroup& group : entry.programs[static_cast<size_t>(v)].groups) {
        if (group.virtual_device < 0 || group.peer >= 0) continue;
        for (const int member : members_of(plan, group, rank)) {
          if (std::ranges::find(first, member) == first.end()) return {};
        }
      }
    }
  }
  std::ranges::sort(first);
  return first;
}

Result<Rehearsal> rehearse(const Host& host, const std::shared_ptr<const CompiledPlan>& plan,
                           int64_t represented_from) {
  Rehearsal rehearsal;
  EPL_ASSIGN(const SimulatedPlan made, simulated(host, plan, represented_from));
  rehearsal.device = made.device->description();
  EPL_ASSIGN(rehearsal.trace, trace_of(*made.session, plan->entries().front(), 0));
  return rehearsal;
}

Result<double> seconds_of_step(const Host& host, const std::shared_ptr<const CompiledPlan>& plan) {
  EPL_ASSIGN(const SimulatedPlan made, simulated(host, plan));
  double seconds = 0;
  for (size_t i = 0; i < plan->entries().size(); ++i) {
    if (plan->entries()[i].kind != EntryKind::train) continue;
    EPL_ASSIGN(const StepTrace trace, trace_of(*made.session, plan->entries()[i], i));
    seconds += trace.end() - trace.begin();
  }
  return seconds / plan->shapes();
}

}  // namespace epl
