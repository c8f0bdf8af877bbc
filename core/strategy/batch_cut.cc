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

namespace {

// The dimension of an operand in which the factor stands as the major part: -1 if nowhere, -2 if the factor is minor or
// stands in several.
int dim_of(const ShardingRule::Operand& operand, int factor) {
  int found = -1;
  for (size_t d = 0; d < operand.size(); ++d) {
    auto it = std::ranges::find(operand[d], factor);
    if (it == operand[d].end()) continue;
    if (it != operand[d].begin() || found != -1) return -2;
    found = static_cast<int>(d);
  }
  return found;
}

}  // namespace

BatchCut follow_batch(const ShardingRule& rule, const std::vector<int>& cut, int64_t units, int wanted) {
  BatchCut result;
  auto couple = [&](std::string why) {
    BatchCut coupled;
    coupled.couples = true;
    coupled.why = std::move(why);
    return coupled;
  };
  int factor = wanted;
  for (size_t i = 0; i < cut.size(); ++i) {
    if (cut[i] < 0) continue;
    const ShardingRule::Dim& dim = rule.inputs[i][cut[i]];
    if (dim.empty()) return couple(cat("dimension ", cut[i], " of operand ", i, " cannot be cut"));
    if (factor >= 0 && dim[0] != factor) return couple("two operands bring the batch in different dimensions");
    factor = dim[0];
  }
  if (factor < 0) return result;
  if (rule.factors[factor].whole) return couple("the op needs the whole batch at once");
  if (rule.factors[factor].size % units != 0) {
    return couple(cat("a dimension of ", rule.factors[factor].size, " mixes samples and does not divide into ", units, " units"));
  }
  result.factor = factor;
  for (const auto& operand : rule.inputs) result.input_dim.push_back(dim_of(operand, factor));
  for (const auto& operand : rule.outputs) result.output_dim.push_back(dim_of(operand, factor));
  for (int dim : result.input_dim) {
    if (dim == -2) return couple("samples are not the major part of a dimension of an operand");
  }
  for (int dim : result.output_dim) {
    if (dim == -2) return couple("samples are not the major part of a dimension of the result");
    if (dim == -1 && rule.factors[factor].reduce != ShardingRule::Reduce::sum) return couple("it takes a maximum over the batch");
  }
  return result;
}

}  // namespace epl
