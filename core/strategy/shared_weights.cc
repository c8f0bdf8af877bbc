#include "core/strategy/shared_weights.h"

#include <map>

namespace epl {
namespace {

// How a scope uses a weight.
struct WeightUse {
  int node = 0;       // the first that cuts it, or that uses it
  bool cuts = false;  // over the ranks of the scope
};

int64_t degree_of(const Plan& plan, int task_graph) {
  return plan.mesh(task_graph).pieces(plan.task_graphs[static_cast<size_t>(task_graph)].split);
}

std::string describe(const Plan& plan, int task_graph, const WeightUse& use) {
  const TaskGraph& t = plan.task_graphs[static_cast<size_t>(task_graph)];
  const int64_t degree = degree_of(plan, task_graph);
  const std::string kind = degree == 1          ? std::string("whole on every rank")
                           : !t.experts.empty() ? cat("expert ", degree)
                                                : cat("split ", degree);
  return cat(t.scope, " (", kind, ", node ", plan.graph->node(NodeId{use.node}).name, ")");
}

Status check_weight(const Plan& plan, const std::string& name, const std::map<int, WeightUse>& uses) {
  for (const auto& [one, first] : uses) {
    for (const auto& [other, second] : uses) {
      if (other <= one || (!first.cuts && !second.cuts) || degree_of(plan, one) == degree_of(plan, other)) continue;
      const bool whole = degree_of(plan, one) == 1 || degree_of(plan, other) == 1;
      if (whole && plan.class_of(one) == plan.class_of(other)) continue;
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
  std::vector<std::map<int, WeightUse>> uses(static_cast<size_t>(graph.value_count()));  // by value and TaskGraph
  for (int n = 0; n < graph.node_count(); ++n) {
    const Node& node = graph.node(NodeId{n});
    const int at = plan.node_task_graph[static_cast<size_t>(n)];
    if (node.phase != Phase::forward || at == every_task_graph) continue;
    EPL_ASSIGN(const OperandShardings operands, operand_shardings(plan, NodeId{n}));
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value v = node.inputs[i];
      if (!v || graph.value(v).kind != ValueKind::parameter) continue;
      WeightUse& use = uses[static_cast<size_t>(v.index)].try_emplace(at, WeightUse{.node = n}).first->second;
      for (const int axis : plan.task_graphs[static_cast<size_t>(at)].split) {
        if (use.cuts || operands.inputs[i].cut_dim(axis) < 0) continue;
        use = {.node = n, .cuts = true};
      }
    }
  }
  for (size_t v = 0; v < uses.size(); ++v)
    EPL_TRY(check_weight(plan, graph.value(Value{static_cast<int>(v)}).name, uses[v]));
  return {};
}

}  // namespace epl
