#include "core/strategy/staging.h"

#include <algorithm>

#include "core/strategy/pipeline.h"
#include "core/strategy/scope_layout.h"
#include "core/strategy/stage_cut.h"

namespace epl {
namespace {

bool alike(const Scope& a, const Scope& b) {
  return a.kind == b.kind && a.device_count == b.device_count && a.scopes.empty() && b.scopes.empty();
}

// What the ranks of each stage share: what the default says, but for copies of everything.
Result<Scope> scope_of_default(const Strategy& strategy) {
  Scope one = strategy.has_default ? strategy.default_scope : Scope();
  if (one.kind == ScopeKind::replicate) one.device_count = 1;
  if (!one.scopes.empty())
    return unsupported("pipeline.num_stages makes stages, and the default has ", one.scopes.size(),
                       " scopes inside it, which no stage can share; name the stages as scopes instead");
  return one;
}

Result<Scope> scope_of_stages(const Strategy& strategy) {
  const Scope& one = strategy.scopes.front();
  for (const Scope& scope : strategy.scopes) {
    if (alike(scope, one)) continue;
    return unsupported("the schedule ", strategy.text("pipeline.strategy"),
                       " gives ranks several stages, whose scopes must be of one kind and number of ranks: ",
                       scope.name.empty() ? join(scope.patterns(), " ") : scope.name, " has ", scope.device_count,
                       " ranks or scopes inside it, the first one ", one.device_count);
  }
  return one;
}

}  // namespace

ByNode<int> first_matches(const Strategy& strategy, const Graph& graph) {
  ByNode<int> found;
  for (const Node& node : graph.nodes()) {
    const auto scope =
        std::ranges::find_if(strategy.scopes, [&](const Scope& s) { return scope_matches(s, graph, node); });
    found.push_back(scope == strategy.scopes.end() ? -1 : static_cast<int>(scope - strategy.scopes.begin()));
  }
  return found;
}

Result<Staging> find_staging(const PlanRequest& request) {
  const Strategy& strategy = request.strategy;
  const bool by_cost = strategy.integer("pipeline.num_stages") > 1;
  Staging found{.of_ranks = strategy, .by_cost = by_cost};
  EPL_ASSIGN(const Pipeline pipeline, pipeline_of(strategy));
  if (!by_cost && pipeline.shape.chunks == 1) return found;
  EPL_ASSIGN(const Scope one, by_cost ? scope_of_default(strategy) : scope_of_stages(strategy));
  const Scope of_class{.kind = one.kind, .device_count = one.device_count};  // which matches everything
  found.of_ranks.scopes.assign(pipeline.shape.classes, of_class);
  found.of_ranks.has_default = false;
  found.of_ranks.default_scope = {};
  found.of_ranks.config.set("cluster.colocate_split_and_replicate", false);  // stages have ranks of their own
  for (int stage = 0; stage < pipeline.shape.stages(); ++stage) {
    found.class_of.push_back(pipeline.row->class_of(pipeline.shape, stage));
    const bool named = !by_cost && !strategy.scopes[stage].name.empty();
    found.names.push_back(named ? strategy.scopes[stage].name : cat("stage", stage));
  }
  if (!by_cost) {
    found.node_stage = first_matches(strategy, *request.graph);
    return found;
  }
  EPL_ASSIGN(StageCut cut, cut_stages(*request.graph, pipeline.shape.stages(), request.state_of));
  found.node_stage = std::move(cut.node_stage);
  if (!cut.note.empty()) found.notes.push_back(std::move(cut.note));
  return found;
}

}  // namespace epl
