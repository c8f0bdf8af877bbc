#include "core/strategy/windows.h"

#include <algorithm>

namespace epl {

bool may_slide(const Plan& plan, NodeId node, const ExtendedRule& rule, const CutFactor& factor, int64_t shards) {
  return factor.outer == 1 && factor.of == 0 && added_cut(rule, plan.node_shardings[node]) < 0 &&
         node_halo(*plan.graph, plan.graph->node(node), rule, factor.factor, shards);
}

namespace {

// The most that a rank reads of what others have.
double border_bytes(const Graph& graph, const Node& node, const ExtendedRule& rule, int factor, int64_t shards) {
  const std::optional<Halo> halo = node_halo(graph, node, rule, factor, shards);
  if (!halo) return 0;
  const int dim = rule.window(factor);
  double all = 0;
  for (int i : rule.row->halo.operands) {
    const TensorType& type = graph.type(node.inputs[i]);
    const int64_t size = type.shape[dim], own = size / shards;
    int64_t most = 0;
    for (int64_t p = 0; p < shards; ++p) {
      const int64_t begin = halo->first + p * halo->step, end = begin + halo->size;
      const int64_t read = std::max<int64_t>(std::min(end, size) - std::max<int64_t>(begin, 0), 0);
      const int64_t here = std::max<int64_t>(std::min(end, (p + 1) * own) - std::max(begin, p * own), 0);
      most = std::max(most, read - here);
    }
    all += static_cast<double>(type.bytes()) / static_cast<double>(size) * static_cast<double>(most);
  }
  return all;
}

}  // namespace

double window_seconds(const Graph& graph, const Node& node, const ExtendedRule& rule, int factor, int64_t shards,
                      const Origins& origins, const CostModel& cost) {
  const RankGroup group = RankGroup::of_first(shards);
  const double bytes = border_bytes(graph, node, rule, factor, shards);
  const double borders = bytes > 0 ? cost.moving(Collective::Kind::send, group, bytes) : 0;
  if (node.phase != Phase::forward) return borders;
  double sums = 0;
  for (Value v : node.inputs) {
    if (v && origins.is_weight(v))
      sums += cost.moving(Collective::Kind::all_reduce, group, static_cast<double>(graph.type(v).bytes()));
  }
  return 2 * borders + sums;
}

bool has_windows(const Plan& plan, int64_t shards) {
  const Graph& graph = *plan.graph;
  for (const NodeId n : graph.node_ids()) {
    const Node& node = graph.node(n);
    if (node.phase != Phase::forward) continue;
    const PartitionRule* row = partition_rule_table().find(node.op->name);
    if (!row || !row->halo.of) continue;
    const ExtendedRule& rule = plan.rule(n);
    for (size_t f = rule.added; f < rule.rule.factors.size(); ++f) {
      if (node_halo(graph, node, rule, static_cast<int>(f), shards)) return true;
    }
  }
  return false;
}

bool cuts_windows(const Plan& plan) {
  for (const NodeId n : plan.graph->node_ids()) {
    const NodeSharding& sharding = plan.node_shardings[n];
    const PartitionRule* row = sharding.cut() ? partition_rule_table().find(plan.graph->node(n).op->name) : nullptr;
    if (!row || !row->halo.of) continue;
    if (plan.rule(n).window(added_cut(plan.rule(n), sharding)) >= 0) return true;
  }
  return false;
}

ByValue<std::optional<CutPosition>> beside_forward(const Plan& plan, const ByValue<CutPosition>& at, int axis) {
  const Graph& graph = *plan.graph;
  ByValue<CutPosition> lies = at;
  ByValue<std::optional<CutPosition>> wished(at.size());
  const auto position_of = [axis](const Sharding& s) { return epl::position_of(s, axis); };
  const auto made_backward = [&](Value v) {
    const NodeId producer = graph.value(v).producer;
    return producer && graph.node(producer).phase == Phase::backward;
  };
  for (const NodeId n : graph.node_ids()) {
    const Node& node = graph.node(n);
    if (node.phase != Phase::backward) continue;
    const ExtendedRule& rule = plan.rule(n);
    CutFactor factor;
    for (size_t i = 0; i < node.inputs.size() && !factor; ++i) {
      const Value v = node.inputs[i];
      if (v && lies[v]) factor = factor_at(rule.rule, rule.rule.inputs[i], lies[v]);
    }
    if (!factor) continue;
    NodeSharding cut;
    cut.factors.resize(rule.rule.factors.size());
    cut.factors[factor.factor] = {{.axes = {axis}, .outer = factor.outer, .of = factor.of}};
    const OperandShardings operands = operand_shardings(rule, cut);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value v = node.inputs[i];
      const CutPosition position = position_of(operands.inputs[i]);
      if (v && position && !lies[v] && made_backward(v)) wished[v] = position;
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) lies[node.outputs[o]] = position_of(operands.outputs[o]);
  }
  return wished;
}

}  // namespace epl
