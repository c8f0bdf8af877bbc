#include "core/strategy/shared_weights.h"

#include <map>

namespace epl {
namespace {

// How a scope uses a weight.
struct WeightUse {
  NodeId node;        // the first that cuts it, or that uses it
  bool cuts = false;  // over the ranks of the scope
};

int64_t degree_of(const Plan& plan, int task_graph) {
  return plan.mesh(task_graph).shards(plan.task_graphs[task_graph].split);
}

std::string describe(const Plan& plan, int task_graph, const WeightUse& use) {
  const TaskGraph& t = plan.task_graphs[task_graph];
  const int64_t degree = degree_of(plan, task_graph);
  const std::string kind = degree == 1          ? std::string("replicated on every rank")
                           : !t.experts.empty() ? cat("expert ", degree)
                                                : cat("split ", degree);
  return cat(t.scope, " (", kind, ", node ", plan.graph->node(use.node).name, ")");
}

Status check_weight(const Plan& plan, const std::string& name, const std::map<int, WeightUse>& uses) {
  for (const auto& [one, first] : uses) {
    for (const auto& [other, second] : uses) {
      if (other <= one || (!first.cuts && !second.cuts) || degree_of(plan, one) == degree_of(plan, other)) continue;
      const bool replicated = degree_of(plan, one) == 1 || degree_of(plan, other) == 1;
      if (replicated && plan.virtual_device_of(one) == plan.virtual_device_of(other)) continue;
      return invalid("parameter ", name, " is placed in two ways: by scope ", describe(plan, one, first),
                     " and by scope ", describe(plan, other, second),
                     "; both must cut it over as many ranks, or the nodes that use it stand in one scope")
          .at(name);
    }
  }
  return {};
}

}  // namespace

Status check_shared_weights(const Plan& plan) {
  const Graph& graph = *plan.graph;
  if (plan.task_graphs.size() < 2) return {};
  ByValue<std::map<int, WeightUse>> uses(graph.value_count());  // by TaskGraph
  for (const NodeId n : graph.node_ids()) {
    const Node& node = graph.node(n);
    const int at = plan.node_task_graph[n];
    if (node.phase != Phase::forward || at == every_task_graph) continue;
    const OperandShardings operands = operand_shardings(plan, n);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value v = node.inputs[i];
      if (!v || graph.value(v).kind != ValueKind::parameter) continue;
      WeightUse& use = uses[v].try_emplace(at, WeightUse{.node = n}).first->second;
      for (const int axis : plan.task_graphs[at].split) {
        if (use.cuts || operands.inputs[i].cut_dim(axis) < 0) continue;
        use = {.node = n, .cuts = true};
      }
    }
  }
  for (const Value v : uses.ids()) EPL_TRY(check_weight(plan, graph.value(v).name, uses[v]));
  return {};
}

}  // namespace epl
