#include "core/strategy/segments.h"

#include <algorithm>

namespace epl {

bool sums_by_segments(const Plan& plan) { return plan.strategy.text("reproducible.level") == "layout"; }

bool keeps_segments(const ShardingRule& rule, const SumSegments& segments, const CutFactor& factor, int64_t shards) {
  const bool sums =
      std::ranges::any_of(rule.outputs, [&](const auto& dims) { return !stands_in(dims, factor.factor); });
  if (!sums) return true;
  return segments.factor == factor.factor && segments.outer == factor.outer && segments.count % shards == 0;
}

int64_t local_segments(const Mesh& mesh, const NodeSharding& node) {
  if (!node.segments) return 1;
  const int factor = node.segments.factor;
  return node.segments.count / (factor < std::ssize(node.factors) ? mesh.shards(node.factors[factor]) : 1);
}

Status check_segments(const Node& node, const ShardingRule& rule, const SumSegments& segments) {
  if (!segments) return {};
  const int factor = segments.factor;
  const bool power = (segments.count & (segments.count - 1)) == 0;
  if (factor < std::ssize(rule.factors) && power && segments.count <= rule.factors[factor].size &&
      rule.factors[factor].size % segments.count == 0 &&
      rule.factors[factor].size / segments.count % segments.outer == 0)
    return {};
  return invalid("node ", node.name, " cannot sum ", segments.count, " segments of factor ", segments.factor);
}

Status verify_segments(const Plan& plan) {
  if (!sums_by_segments(plan) || plan.node_shardings.empty()) return {};
  const Graph& graph = *plan.graph;
  for (const NodeId n : graph.node_ids()) {
    const NodeSharding& sharding = plan.node_shardings[n];
    if (!sharding.cut()) continue;
    const Node& node = graph.node(n);
    const int at = std::max(plan.node_task_graph[n], 0);
    const Mesh& mesh = plan.mesh(at);
    const BatchLayout batch = plan.batch_of(at);
    const ShardingRule& rule = plan.rules->own[n];
    if (sharding.factors.size() != rule.factors.size()) continue;  // verify_factors names it
    for (int f = 0; f < std::ssize(rule.factors); ++f) {
      for (const AxisCut& cut : sharding.factors[f]) {
        if (batch.cuts_over(cut.axes[0])) continue;
        const CutFactor factor{f, cut.outer};
        if (keeps_segments(rule, sharding.segments, factor, mesh.shards(cut.axes))) continue;
        return Status(Code::unsupported,
                      cat("node ", node.name, " (", node.op->name, ") would sum shards of what ", mesh.shards(cut.axes),
                          " ranks hold in another order than one rank; at reproducible.level=layout it cannot be cut "
                          "there"),
                      node.name);
      }
    }
  }
  for (const Value v : plan.shardings.ids()) {
    for (const Partial& partial : plan.shardings[v].partial) {
      if (partial.kind == ShardingRule::Reduce::owner) continue;
      const std::string& name = graph.value(v).name;
      if (!plan.batch_of(plan.value_task_graph[v]).cuts_over(partial.axis) &&
          plan.mesh().axes[partial.axis].kind == MeshAxis::Kind::rank)
        return unsupported("value ", name,
                           " is used before its sum over ranks is complete, which "
                           "reproducible.level=layout does not allow");
    }
  }
  return {};
}

}  // namespace epl
