// Which cuts a node may have: that operands bring, that its own work allows, that gradients of weights are wanted in.
#include "core/strategy/local_experts.h"
#include "core/strategy/splitting.h"
#include "core/strategy/windows.h"

namespace epl {

void Splitting::find_wishes() {
  wished_ = true;
  if (windows_) wishes_ = beside_forward(plan_, at_, axis_);
  const auto beside = wishes_;
  for (const NodeId n : graph_.node_ids().reversed()) {
    const Node& node = graph_.node(n);
    if (node.phase == Phase::forward) break;
    const ShardingRule& rule = rule_of(n);
    const auto wish = [&](const CutFactor& factor) {
      const OperandShardings operands = operands_of(n, factor);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const Value v = node.inputs[i];
        if (v && !beside[v]) wishes_[v] = position_of(operands.inputs[i]);
      }
    };
    bool updates = false;
    for (size_t i = 0; i < node.inputs.size() && node.phase == Phase::update; ++i) {
      if (!node.inputs[i] || graph_.value(node.inputs[i]).kind != ValueKind::parameter) continue;
      updates = true;
      const CutPosition& position = at_[node.inputs[i]];
      const CutFactor factor = position ? factor_at(rule, rule.inputs[i], position) : CutFactor();
      if (factor || !position) wish(factor);
      break;
    }
    if (updates || work(n) > 0 || (experts_ && has_indices(n))) continue;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const auto& wished = wishes_[node.outputs[o]];
      // Full sums are made of shards as well, and so is the norm of a gradient.
      if (!wished || ((windows_ || node.phase == Phase::update) && !*wished)) continue;
      const CutFactor factor = *wished ? factor_at(rule, rule.outputs[o], *wished) : CutFactor();
      if (factor || !*wished) wish(factor);
      break;
    }
  }
}

std::vector<CutFactor> Splitting::candidates(NodeId n, const std::vector<PinnedOperand>& pinned) const {
  const Node& node = graph_.node(n);
  const ShardingRule& rule = rule_of(n);
  std::vector<CutFactor> found;
  const auto offer = [&](const CutFactor& factor) {
    if (factor && fits(n, factor) && std::ranges::find(found, factor) == found.end()) found.push_back(factor);
  };
  const auto counts = [&](int f) { return !experts_ || counts_experts(origins_, node, rule, f); };
  for (const PinnedOperand& pin : pinned) {
    const ShardingRule::Operand& dims = pin.result ? rule.outputs[pin.at] : rule.inputs[pin.at];
    for (int f : dims[pin.dim]) {
      if (counts(f)) offer(all_of(n, f));
    }
  }
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] && at_[node.inputs[i]]) offer(factor_at(rule, rule.inputs[i], at_[node.inputs[i]]));
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const auto& wish = wishes_[node.outputs[o]];
    if (wish && *wish) offer(factor_at(rule, rule.outputs[o], *wish));
  }
  for (size_t i = 0; i < node.inputs.size() && has_indices(n); ++i) {  // rows of a table
    if (!node.inputs[i] || decided_[node.inputs[i]]) continue;
    for (const ShardingRule::Dim& dim : rule.inputs[i]) {
      for (int f : dim) {
        if (is_added(n, {f, 1})) offer(all_of(n, f));
      }
    }
  }
  const auto offer_runs = [&](int f, const DimRuns& runs) { offer({f, runs.outer, of(runs.granules)}); };
  if (fills(n)) nodes_->runs_of_results(n, foresight, [&](int f) { return is_added(n, {f, 1}); }, offer_runs);
  if (work(n) == 0) return found;
  for (size_t f = extended_of(n).added; f < rule.factors.size() && windows_ && node.phase == Phase::forward; ++f) {
    if (extended_of(n).window(static_cast<int>(f)) >= 0) offer({static_cast<int>(f), 1});
  }
  if (!found.empty() && windows_ && !begun_) return found;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (origins_.factor(static_cast<int>(f)).cut() && f < extended_of(n).added && counts(static_cast<int>(f)))
      offer(all_of(n, static_cast<int>(f)));
  }
  if (experts_) return found;
  nodes_->runs_of_results(n, foresight, [&](int f) { return origins_.factor(f).cut(); }, offer_runs);
  return found;
}

bool Splitting::fits(NodeId n, const CutFactor& factor) const {
  const ShardingRule::Factor& known = rule_of(n).factors[factor.factor];
  if (known.size % (factor.outer * (factor.of > 0 ? factor.of : degree_)) != 0) return false;
  if (factor.of > 0 && (!uneven_ || factor.of % degree_ == 0 || largest(factor) == factor.of)) return false;
  const bool slides = extended_of(n).window(factor.factor) >= 0;
  if (slides && (axes_.size() > 1 || !may_slide(plan_, n, extended_of(n), factor, degree_))) return false;
  if (is_added(n, factor))
    return (experts_ ? expert_rows_ && has_indices(n) : shards_) &&
           (plan_.batch_of(here_).runs(plan_.mesh(here_)) == 1 ||
            (experts_ && !sums_batch_without(rule_of(n), plan_.node_shardings[n], factor.factor))) &&
           (factor.outer == 1 || !has_indices(n));
  if (known.unshardable) return false;
  if (by_segments_ && !keeps_segments(rule_of(n), plan_.node_shardings[n].segments, factor, degree_)) return false;
  const auto& factors = plan_.node_shardings[n].factors;
  if (factors.empty()) return true;
  const BatchLayout batch = plan_.batch_of(plan_.node_task_graph[n]);
  for (const AxisCut& cut : factors[factor.factor]) {
    int64_t shards = cut.outer;
    if (!batch.cuts_over(cut.axes.front())) {  // another TaskGraph's own, or already cut by experts
      if (is_here(n)) return false;
      continue;
    }
    for (int axis : cut.axes) shards *= plan_.mesh(here_).axes[axis].size;
    if (factor.outer % shards != 0) return false;
  }
  return true;
}

}  // namespace epl
