#include "core/strategy/origins.h"

#include <algorithm>

#include "core/strategy/plan.h"

namespace epl {

Origins::Origins(const Graph& graph)
    : graph_(graph),
      of_inputs_(graph.value_count()),
      of_weights_(of_inputs_.size()),
      is_weight_(of_inputs_.size()),
      depends_on_weights_(of_inputs_.size()) {
  for (const Value v : graph.value_ids()) {
    const ValueInfo& info = graph.value(v);
    of_inputs_[v].assign(info.type.shape.size(), info.kind == ValueKind::input);
    of_weights_[v].assign(info.type.shape.size(), is_state(info.kind));
    is_weight_[v] = depends_on_weights_[v] = is_state(info.kind);
  }
}

namespace {

// No operand has a factor of the dimension, as where a convolution slides over positions.
bool made_here(const ShardingRule& rule, const ShardingRule::Dim& dim) {
  return !dim.empty() && std::ranges::none_of(dim, [&](int f) {
    return std::ranges::any_of(rule.inputs, [&](const ShardingRule::Operand& operand) {
      return std::ranges::any_of(
          operand, [&](const ShardingRule::Dim& known) { return std::ranges::find(known, f) != known.end(); });
    });
  });
}

}  // namespace

// Which dimensions of the results come of dimensions of the model's inputs, and which of weights' alone.
void Origins::visit(const Node& node, const ShardingRule& rule) {
  of_factor_.assign(rule.factors.size(), {});
  bool weights = true, some = false, depends = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i]) continue;
    const Value v = node.inputs[i];
    weights = weights && (is_weight_[v] || graph_.value(v).kind == ValueKind::constant);
    some = some || is_weight_[v];
    depends = depends || depends_on_weights_[v];
    for (size_t d = 0; d < of_inputs_[v].size(); ++d) {
      for (int f : rule.inputs[i][d]) {
        Origin& factor = of_factor_[f];
        factor = {factor.inputs || of_inputs_[v][d], factor.weights || of_weights_[v][d]};
      }
    }
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const Value v = node.outputs[o];
    is_weight_[v] = weights && some && node.phase == Phase::forward;
    depends_on_weights_[v] = depends;
    of_weights_[v].assign(of_inputs_[v].size(), false);
    for (size_t d = 0; d < of_inputs_[v].size(); ++d) {
      const ShardingRule::Dim& dim = rule.outputs[o][d];
      const auto origin = [&](int f) { return of_factor_[f]; };
      of_inputs_[v][d] = (!dim.empty() && std::ranges::all_of(dim, &Origin::inputs, origin)) ||
                         (made_here(rule, dim) && of_inputs_at(node, d, of_inputs_[v].size()));
      of_weights_[v][d] = std::ranges::any_of(dim, &Origin::weights, origin);
    }
  }
}

// Such a dimension comes of the same one of an operand.
bool Origins::of_inputs_at(const Node& node, size_t d, size_t ndim) const {
  return std::ranges::any_of(node.inputs,
                             [&](Value v) { return v && of_inputs_[v].size() == ndim && of_inputs_[v][d]; });
}

bool counts_experts(const Origins& origins, const Node& node, const ShardingRule& rule, int factor) {
  const auto has = [&](const ShardingRule::Operand& operand) {
    return std::ranges::any_of(operand, [&](const auto& dim) { return std::ranges::find(dim, factor) != dim.end(); });
  };
  bool weights = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i]) continue;
    const bool here = has(rule.inputs[i]), for_all = std::ranges::any_of(rule.inputs[i], &ShardingRule::Dim::empty);
    if (!here && !for_all) return false;
    weights = weights || (here && origins.is_weight(node.inputs[i]));
  }
  return weights && std::ranges::all_of(rule.outputs, has);
}

}  // namespace epl
