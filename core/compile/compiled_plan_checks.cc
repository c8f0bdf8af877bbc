// What must hold of all entries of a plan together, and what links their programs.
#include <map>
#include <set>

#include "core/compile/compiled_plan.h"
#include "core/program/link.h"
#include "core/strategy/scope_layout.h"

namespace epl {

namespace {

// Of these scopes and those inside them, one that has none inside and is not among `used`.
Status find_unused(const std::vector<Scope>& scopes, const std::set<const Scope*>& used, const std::string& outer) {
  for (size_t i = 0; i < scopes.size(); ++i) {
    const Scope& scope = scopes[i];
    const std::string name = scope.name.empty() ? cat(outer, i) : scope.name;
    if (scope.scopes.empty() && !used.contains(&scope))
      return invalid("scope ", name, " matches no node: ", join(scope.patterns(), ", "));
    EPL_TRY(find_unused(scope.scopes, used, name + "."));
  }
  return {};
}

}  // namespace

// An entry may leave a scope without nodes, where what it computes needs none of them.
Status CompiledPlan::check_scopes() const {
  const Strategy& strategy = options_.strategy;
  std::set<const Scope*> used;
  for (const Entry& entry : entries_) {
    const Graph& graph = *entry.plan.graph;
    for (const Node& node : graph.nodes()) {
      if (node.phase == Phase::forward) used.insert(innermost_scope(strategy, graph, node));
    }
  }
  const bool stages = strategy.scopes.size() > 1 && !strategy.flag("cluster.colocate_split_and_replicate");
  EPL_TRY(find_unused(strategy.scopes, used, stages ? "stage" : "scope"));
  return find_unused(strategy.default_scope.scopes, used, "default.");
}

Status CompiledPlan::check_merges() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) {
    for (const Port& port : entry.outputs) {
      if (std::ranges::find(names, port.name) == names.end()) names.push_back(port.name);
    }
  }
  return check_merge_patterns(options_.strategy, names);
}

// Entries share ranks and their state, so each has the same virtual devices and cuts them over the same axes.
Status CompiledPlan::check_meshes() const {
  const Plan& first = entries_.front().plan;
  const auto same = [](const Mesh& one, const Mesh& other) {
    return one.device.ranks == other.device.ranks &&
           std::ranges::equal(one.axes, other.axes, [](const MeshAxis& a, const MeshAxis& b) {
             return a.name == b.name && a.kind == b.kind && (a.kind != MeshAxis::Kind::rank || a.size == b.size);
           });
  };
  for (const Entry& entry : entries_) {
    if (!std::ranges::equal(entry.plan.meshes, first.meshes, same))
      return unsupported("the ranks of ", entry.name(), " would share their work in another way than those of ",
                         entries_.front().name(), "; plan this shape by itself");
  }
  return {};
}

// A virtual device has one state for all entries, so that each name must be the same one's in all of them. What an
// entry does not use is where another one uses it.
Status CompiledPlan::link_programs() {
  const size_t count = entries_.front().programs.size();
  std::map<std::string, size_t> homes;
  for (size_t t = 0; t < count; ++t) {
    for (const Entry& entry : entries_) {
      const std::set<StateLocation> used = state_in_use(entry.programs[t]);
      for (const StateSlot& slot : entry.programs[t].state) {
        if (!used.contains(slot.location())) continue;
        const auto [home, is_new] = homes.emplace(slot.name, t);
        if (home->second == t) continue;
        return unsupported(slot.name, " is used by stage ", entry.plan.virtual_device_name(static_cast<int>(t)), " in ",
                           entry.name(), ", and elsewhere by ",
                           entry.plan.virtual_device_name(static_cast<int>(home->second)));
      }
    }
  }
  for (size_t t = 0; t < count; ++t) {
    std::vector<Program*> programs;
    for (Entry& entry : entries_) {
      // Predict first: what it reads is where the state begins, and a predictor has no more of it.
      programs.insert(entry.kind == EntryKind::predict ? programs.begin() : programs.end(), &entry.programs[t]);
      std::erase_if(entry.programs[t].state, [&](const StateSlot& slot) {
        const auto home = homes.find(slot.name);
        return home != homes.end() && home->second != t;
      });
    }
    EPL_ASSIGN(StateLayout state, link(programs));
    states_.push_back(std::move(state));
  }
  state_ = StateLayout::all(states_);
  return {};
}

}  // namespace epl
