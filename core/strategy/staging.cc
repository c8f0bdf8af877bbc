#include "core/strategy/staging.h"

#include <algorithm>
#include <numeric>

#include "core/strategy/pipeline.h"
#include "core/strategy/scope_layout.h"
#include "core/strategy/stage_cut.h"

namespace epl {
namespace {

bool alike(const Scope& a, const Scope& b) {
  return a.kind == b.kind && a.device_count == b.device_count && std::ranges::equal(a.scopes, b.scopes, alike);
}

std::string name_of(const Scope& scope) { return scope.name.empty() ? join(scope.patterns(), " ") : scope.name; }

// With as few copies as hold what is inside: ranks that are left over are copies anyway.
Result<Scope> with_least_copies(Scope scope, int64_t ranks) {
  if (scope.device_count > ranks) {
    return invalid("scope ", name_of(scope), " (", scope_kind_name(scope.kind), " ", scope.device_count,
                   ") wants more than the ", ranks, " ranks of the job");
  }
  if (scope.kind != ScopeKind::replicate) return scope;
  scope.device_count = 1;
  for (Scope& inner : scope.scopes) {
    EPL_ASSIGN(inner, with_least_copies(std::move(inner), ranks));
    scope.device_count = std::lcm(scope.device_count, inner.device_count);
    if (scope.device_count > ranks)
      return invalid("the scopes inside ", name_of(scope), " have no common number of ranks up to ", ranks);
  }
  return scope;
}

// What the ranks of each found stage share: what the default says, and beside it the scopes, which are no stages here.
Result<Scope> scope_of_found_stages(const Strategy& strategy, int64_t ranks) {
  Scope rest = strategy.has_default ? strategy.default_scope : Scope();
  if (rest.name.empty()) rest.name = "default";
  if (strategy.scopes.empty()) return with_least_copies(std::move(rest), ranks);
  Scope stage{.scopes = strategy.scopes};
  if (strategy.has_default) stage.scopes.push_back(std::move(rest));
  return with_least_copies(std::move(stage), ranks);
}

// Scopes side by side inside a stage have ranks of their own, and so they are stages themselves.
const Scope* stages_inside(const Scope& scope) {
  if (scope.scopes.size() > 1) return &scope;
  return scope.scopes.empty() ? nullptr : stages_inside(scope.scopes.front());
}

Result<Scope> scope_of_stages(const Strategy& strategy) {
  const Scope& one = strategy.scopes.front();
  for (const Scope& scope : strategy.scopes) {
    if (const Scope* outer = stages_inside(scope)) {
      return unsupported("the schedule ", strategy.text("pipeline.strategy"),
                         " gives ranks several stages, and the scopes inside ", name_of(*outer),
                         " would be stages with ranks of their own; name all stages side by side");
    }
    if (alike(scope, one)) continue;
    return unsupported("the schedule ", strategy.text("pipeline.strategy"),
                       " gives ranks several stages, whose scopes must share out ranks alike: ", name_of(scope),
                       " has ", scope.device_count, " ranks and ", scope.scopes.size(),
                       " scopes inside it, the first one ", one.device_count, " and ", one.scopes.size());
  }
  return one;
}

}  // namespace

Result<Staging> find_staging(const PlanRequest& request, const CostModel& cost) {
  const Strategy& strategy = request.strategy;
  const bool by_cost = strategy.integer("pipeline.num_stages") > 1;
  Staging found{.of_ranks = strategy, .by_cost = by_cost};
  EPL_ASSIGN(const Pipeline pipeline, pipeline_of(strategy));
  if (!by_cost && pipeline.shape.chunks == 1) return found;
  EPL_ASSIGN(Scope of_device, by_cost ? scope_of_found_stages(strategy, request.ranks) : scope_of_stages(strategy));
  of_device.name.clear();
  of_device.match.clear();  // it has all nodes of its stages
  of_device.sources.clear();
  found.of_ranks.scopes.assign(pipeline.shape.virtual_devices, of_device);
  found.of_ranks.has_default = false;
  found.of_ranks.default_scope = {};
  for (int stage = 0; stage < pipeline.shape.stages(); ++stage) {
    found.virtual_device_of.push_back(pipeline.row->virtual_device_of(pipeline.shape, stage));
    const bool named = !by_cost && !strategy.scopes[stage].name.empty();
    found.names.push_back(named ? strategy.scopes[stage].name : cat("stage", stage));
    found.scopes.push_back(by_cost ? of_device : strategy.scopes[stage]);
  }
  if (!by_cost) {
    for (const Node& node : request.graph->nodes())
      found.node_stage.push_back(match_among(strategy.scopes, *request.graph, node));
    return found;
  }
  StageJob job{.stages = pipeline.shape.stages(),
               .micro_batches = strategy.integer("pipeline.num_micro_batch"),
               .ranks = request.ranks,
               .ranks_of_stage = std::max<int64_t>(request.ranks / pipeline.shape.virtual_devices, 1)};
  for (int stage = 0; stage < job.stages && !request.machine.kinds.empty(); ++stage)
    job.speeds.push_back(
        request.machine.slowest(found.virtual_device_of[stage] * job.ranks_of_stage, job.ranks_of_stage));
  EPL_ASSIGN(StageCut cut, cut_stages(*request.graph, job, cost, request.state_of));
  found.node_stage = std::move(cut.node_stage);
  if (!cut.note.empty()) found.notes.push_back(std::move(cut.note));
  return found;
}

}  // namespace epl
