#include "core/strategy/batch_cut.h"

#include <algorithm>

namespace epl {

Result<ShardingRule> node_rule(const Graph& graph, const Node& node) {
  std::vector<const TensorType*> inputs, outputs;
  for (Value v : node.inputs) inputs.push_back(v ? &graph.type(v) : nullptr);
  for (Value v : node.outputs) outputs.push_back(v ? &graph.type(v) : nullptr);
  auto rule = sharding_rule(OpQuery(*node.op, node.attributes, inputs, outputs));
  if (!rule.ok()) return rule.status().with_context(cat("node ", node.name)).at(node.name);
  return rule;
}

CutFactor factor_at(const ShardingRule& rule, const ShardingRule::Operand& operand, const CutPlace& place) {
  int64_t before = 1;  // product of the factors before this one
  for (int factor : operand[place.dim]) {
    const int64_t size = rule.factors[factor].size;
    if (place.outer < before * size) return place.outer % before == 0 ? CutFactor{factor, place.outer / before} : CutFactor();
    before *= size;
  }
  return {};
}

namespace {

// Where a cut factor stands in an operand; `twice` where it stands in several dimensions.
CutPlace place_of(const ShardingRule& rule, const ShardingRule::Operand& operand, const CutFactor& cut, bool& twice) {
  CutPlace found;
  for (size_t d = 0; d < operand.size(); ++d) {
    auto it = std::ranges::find(operand[d], cut.factor);
    if (it == operand[d].end()) continue;
    twice = twice || found;
    found = {static_cast<int>(d), cut.outer};
    for (auto before = operand[d].begin(); before != it; ++before) found.outer *= rule.factors[*before].size;
  }
  return found;
}

bool stands_in(const ShardingRule::Operand& operand, int factor) {
  return std::ranges::any_of(operand, [&](const ShardingRule::Dim& dim) { return std::ranges::find(dim, factor) != dim.end(); });
}

// How often runs of samples come round in what an output sums over: the sizes of the summed factors that stand before the
// batch in an operand. Whole factors are not summed over.
int64_t rounds(const ShardingRule& rule, const ShardingRule::Operand& output, const CutFactor& cut) {
  for (const auto& operand : rule.inputs) {
    if (!stands_in(operand, cut.factor)) continue;
    int64_t outer = cut.outer;
    for (const ShardingRule::Dim& dim : operand) {
      for (int factor : dim) {
        if (factor == cut.factor) return outer;
        if (!rule.factors[factor].whole && !stands_in(output, factor)) outer *= rule.factors[factor].size;
      }
    }
  }
  return cut.outer;
}

}  // namespace

BatchCut follow_batch(const ShardingRule& rule, const std::vector<CutPlace>& cut, int64_t units, CutFactor wanted) {
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
  if (known.whole) return couple("the op needs the whole batch at once");
  if (known.size % (factor.outer * units) != 0) {
    return couple(cat("a dimension of ", known.size / factor.outer, " mixes samples and does not divide into ", units, " units"));
  }
  result.factor = factor;
  bool twice = false;
  for (const auto& operand : rule.inputs) result.inputs.push_back(place_of(rule, operand, factor, twice));
  bool sums = false;
  for (const auto& operand : rule.outputs) {
    result.outputs.push_back(place_of(rule, operand, factor, twice));
    if (result.outputs.back()) continue;
    if (known.reduce != ShardingRule::Reduce::sum) return couple("it takes a maximum over the batch");
    const int64_t outer = rounds(rule, operand, factor);
    if (sums && outer != result.sum_outer) return couple("its results sum over the batch in different orders");
    result.sum_outer = outer;
    sums = true;
  }
  if (twice) return couple("samples stand in two dimensions of an operand");
  return result;
}

}  // namespace epl
