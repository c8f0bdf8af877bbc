#include "core/strategy/batch_cut.h"

#include <algorithm>

namespace epl {

namespace {

OpQuery query_of(const Graph& graph, const Node& node) {
  std::vector<const TensorType*> inputs, outputs;
  for (Value v : node.inputs) inputs.push_back(v ? &graph.type(v) : nullptr);
  for (Value v : node.outputs) outputs.push_back(v ? &graph.type(v) : nullptr);
  return OpQuery(*node.op, node.attributes, inputs, outputs);
}

}  // namespace

Result<ShardingRule> node_rule(const Graph& graph, const Node& node) {
  auto rule = sharding_rule(query_of(graph, node));
  if (!rule.ok()) return rule.status().with_context(cat("node ", node.name)).at(node.name);
  return rule;
}

Result<ExtendedRule> node_extended_rule(const Graph& graph, const Node& node) {
  auto rule = extended_rule(query_of(graph, node));
  if (!rule.ok()) return rule.status().with_context(cat("node ", node.name)).at(node.name);
  return rule;
}

Result<std::shared_ptr<const NodeRules>> node_rules(const Graph& graph) {
  auto rules = std::make_shared<NodeRules>();
  for (const Node& node : graph.nodes()) {
    EPL_ASSIGN(ShardingRule own, node_rule(graph, node));
    EPL_ASSIGN(ExtendedRule extended, node_extended_rule(graph, node));
    rules->own.push_back(std::move(own));
    rules->extended.push_back(std::move(extended));
  }
  return std::shared_ptr<const NodeRules>(std::move(rules));
}

OperandShardings operand_shardings(const ExtendedRule& rule, const NodeSharding& node) {
  OperandShardings operands = operand_shardings(rule.rule, node);
  if (!rule.row || !rule.row->by_body()) return operands;
  for (size_t f = rule.added; f < node.factors.size(); ++f) {  // the body makes its results complete
    for (Sharding& output : operands.outputs)
      std::erase_if(output.partial, [&](const Partial& p) { return find_cut(node.factors[f], p.axis) != nullptr; });
  }
  return operands;
}

std::optional<Halo> node_halo(const Graph& graph, const Node& node, const ExtendedRule& rule, int factor,
                              int64_t shards) {
  const int dim = rule.window(factor);
  if (dim < 0 || rule.rule.factors[factor].size % shards != 0) return std::nullopt;
  return rule.row->halo.of(query_of(graph, node), dim, shards);
}

int added_cut(const ExtendedRule& rule, const NodeSharding& node) {
  for (size_t f = rule.added; f < node.factors.size(); ++f) {
    if (!node.factors[f].empty()) return static_cast<int>(f);
  }
  return -1;
}

bool sums_batch_without(const ShardingRule& rule, const NodeSharding& node, int factor) {
  return std::ranges::any_of(rule.outputs, [&](const ShardingRule::Operand& output) {
    for (size_t f = 0; f < node.factors.size(); ++f) {
      const bool summed = find_cut(node.factors[f], batch_axis) && !stands_in(output, static_cast<int>(f));
      if (summed && !stands_in(output, factor)) return true;
    }
    return false;
  });
}

CutPosition position_of(const Sharding& sharding, int axis) {
  return {sharding.cut_dim(axis), sharding.outer(axis), sharding.of(axis)};
}

CutFactor factor_at(const ShardingRule& rule, const ShardingRule::Operand& operand, const CutPosition& position) {
  int64_t before = 1;  // product of the factors before this one
  for (int factor : operand[position.dim]) {
    const int64_t size = rule.factors[factor].size;
    if (position.outer < before * size) {
      const int64_t outer = position.outer / before;
      const bool keeps_granules = position.of == 0 || size % (outer * position.of) == 0;
      return position.outer % before == 0 && keeps_granules ? CutFactor{factor, outer, position.of} : CutFactor();
    }
    before *= size;
  }
  return {};
}

BatchCut follow_batch(const ShardingRule& rule, const std::vector<CutPosition>& cut, int64_t units, CutFactor wanted) {
  BatchCut result;
  auto couple = [&](std::string why) {
    BatchCut coupled;
    coupled.couples = true;
    coupled.why = std::move(why);
    return coupled;
  };
  CutFactor factor = wanted;
  for (size_t i = 0; i < cut.size(); ++i) {
    if (!cut[i]) continue;
    const CutFactor brought = factor_at(rule, rule.inputs[i], cut[i]);
    if (!brought) return couple(cat("dimension ", cut[i].dim, " of operand ", i, " cannot be cut"));
    if (factor && brought != factor) return couple("two operands bring the batch in different dimensions");
    factor = brought;
  }
  if (!factor) return result;
  const ShardingRule::Factor& known = rule.factors[factor.factor];
  if (known.unshardable || known.added >= 0) return couple("the op needs the full batch at once");
  if (known.size % (factor.outer * units) != 0) {
    return couple(
        cat("a dimension of ", known.size / factor.outer, " mixes samples and does not divide into ", units, " units"));
  }
  result.factor = factor;
  NodeSharding node;
  node.factors.resize(rule.factors.size());
  node.factors[factor.factor] = {{.axes = {batch_axis}, .outer = factor.outer}};
  const OperandShardings operands = operand_shardings(rule, node);
  bool twice = false, sums = false;
  const auto position_of = [&](const Sharding& sharding) {
    twice = twice || std::ranges::count_if(sharding.dims, [](const Cuts& cuts) { return !cuts.empty(); }) > 1;
    return epl::position_of(sharding, batch_axis);
  };
  for (const Sharding& input : operands.inputs) result.inputs.push_back(position_of(input));
  for (size_t o = 0; o < operands.outputs.size(); ++o) {
    result.outputs.push_back(position_of(operands.outputs[o]));
    if (result.outputs.back()) continue;
    if (known.reduce != ShardingRule::Reduce::sum) return couple("it takes a maximum over the batch");
    if (sums && operands.sum_outers[o] != result.sum_outer)
      return couple("its results sum over the batch in different orders");
    result.sum_outer = operands.sum_outers[o];
    sums = true;
  }
  if (twice) return couple("samples stand in two dimensions of an operand");
  return result;
}

}  // namespace epl
