#include "core/strategy/split_nodes.h"

#include <algorithm>

#include "core/strategy/node_cost.h"

namespace epl {

SplitNodes::SplitNodes(const Plan& plan, const CostModel& cost, bool windows)
    : graph_(plan.graph), rules_(plan.rules), users_(plan.graph->users()) {
  const Graph& graph = *graph_;
  for (const NodeId n : graph.node_ids()) {
    const Work work = work_of(graph, graph.node(n));
    const bool much = work.kind() == WorkKind::product || (windows && rule(n).slides());
    work_.push_back(much ? cost.computing(work) : 0);
  }
}

std::vector<DimRuns> SplitNodes::runs_of_uses(Value v, int dim, int ahead) const {
  std::vector<DimRuns> found;
  if (ahead == 0) return found;
  for (const NodeId user : users(v)) {
    const Node& node = graph_->node(user);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != v) continue;
      const ShardingRule& known = rule(user).rule;
      const ShardingRule::Dim& factors = known.inputs[i][dim];
      int64_t before = 1;
      for (size_t f = 0; f < factors.size() && factors.size() > 1; ++f) {
        const int64_t size = known.factors[factors[f]].size;
        found.push_back({before, size});
        before *= size;
      }
      if (factors.size() != 1 || work(user) > 0) continue;
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        const auto& dims = known.outputs[o];
        const auto same = std::ranges::find(dims, factors);
        if (same == dims.end()) continue;
        const auto further = runs_of_uses(node.outputs[o], static_cast<int>(same - dims.begin()), ahead - 1);
        found.insert(found.end(), further.begin(), further.end());
      }
    }
  }
  return found;
}

}  // namespace epl
