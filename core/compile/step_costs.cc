#include "core/compile/step_costs.h"

#include <algorithm>

#include "core/compile/compiled_plan.h"
#include "core/program/transfer.h"

namespace epl {

std::string_view work_name(WorkKind kind) { return kind == WorkKind::product ? "products" : "other work"; }

StageRoofline roofline_of(const CompiledPlan& plan, const RankTrace& rank) {
  StageRoofline all;
  const CostModel cost(of_threads(plan.device()->machine(), plan.threads_per_rank()));
  const double speed = cost.machine().kind(rank.rank).speed;
  all.bandwidth = cost.machine().memory(MemoryKind::device).bandwidth * speed;
  std::map<int, int64_t> calls;  // by instruction
  for (const TraceEvent& event : rank.events) {
    const Instruction* in = rank.instruction(event);
    if (in && !in->transfer) ++calls[event.instruction];
  }
  for (const auto& [instruction, count] : calls) {
    const Work work = work_of(*rank.program->instructions[static_cast<size_t>(instruction)].query);
    const auto is_alike = [&](const StageRoofline::Part& one) {
      return one.kind == work.kind() && one.dtype == work.dtype;
    };
    auto part = std::ranges::find_if(all.parts, is_alike);
    if (part == all.parts.end()) {
      const double rate = cost.machine().rate(work.dtype, work.kind()) * speed;
      part = all.parts.insert(part, {.kind = work.kind(), .dtype = work.dtype, .rate = rate});
    }
    const auto times = static_cast<double>(count);
    part->kernels += count;
    part->flops += times * work.flops;
    part->bytes += times * work.bytes;
    part->computing += times * cost.computing(work) / speed;
    part->memory += times * cost.memory(work.bytes) / speed;
    part->seconds += times * cost.kernel(work) / speed;
    all.launching += times * cost.launch() / speed;
  }
  for (const StageRoofline::Part& part : all.parts) {
    all.kernels += part.kernels;
    all.flops += part.flops;
    all.bytes += part.bytes;
    all.computing += part.computing;
    all.memory += part.memory;
    all.seconds += part.seconds;
  }
  return all;
}

void LinkSeconds::add(const LinkSeconds& other) {
  seconds += other.seconds;
  least += other.least;
  level = std::max(level, other.level);
  two_levels = two_levels || other.two_levels;
}

RankLinks::RankLinks(const CompiledPlan& plan, const RankTrace& rank)
    : rank_(rank),
      cost_(plan.device()->machine()),
      levels_(plan.options().strategy.flag("communication.hierarchical")),
      needs_(cost_.machine()) {
  for (int level = 0; level < std::ssize(cost_.machine().links); ++level) step_.uses.push_back({.level = level});
}

RankLinks::Call RankLinks::call_of(const TraceEvent& event) const {
  Call call;
  const std::vector<int>* ranks = rank_.group(event);
  if (!ranks) return call;
  const Instruction& in = *rank_.instruction(event);
  // Groups of two virtual devices are never made of levels (World::make_groups).
  const bool levels = levels_ && rank_.program->groups[static_cast<size_t>(in.group)].virtual_device < 0;
  for (const GroupCall& one : group_calls(in, std::ssize(*ranks))) {
    const LinkWay way = link_way(cost_, *ranks, one.kind, one.bytes, levels ? one.elements : 0);
    LinkNeed need = link_need(cost_.machine(), *ranks, one.kind, one.bytes);
    call.seconds.add({way.seconds(), need.seconds, need.level, way.two_levels});
    if (one.kind == Collective::Kind::receive) continue;
    call.uses.insert(call.uses.end(), way.uses.begin(), way.uses.end());
    call.needs.push_back(std::move(need));
  }
  return call;
}

LinkSeconds RankLinks::add(const TraceEvent& event) {
  auto found = known_.find(event.instruction);
  if (found == known_.end()) found = known_.emplace(event.instruction, call_of(event)).first;
  const Call& call = found->second;
  for (const LinkUse& use : call.uses) {
    LinkUse& all = step_.uses[static_cast<size_t>(use.level)];
    all.bytes += use.bytes;
    all.seconds += use.seconds;
    step_.all.seconds += use.seconds;
  }
  for (const LinkNeed& need : call.needs) needs_.add(need);
  step_.all.two_levels = step_.all.two_levels || call.seconds.two_levels;
  return call.seconds;
}

StepLinks RankLinks::step() const {
  StepLinks step = step_;
  const LinkNeed least = needs_.least();
  step.all.least = least.seconds;
  step.all.level = least.level;
  return step;
}

}  // namespace epl
