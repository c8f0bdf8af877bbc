#include "core/strategy/split_state.h"

#include "core/strategy/segments.h"
#include "core/strategy/windows.h"

namespace epl {

SplitState::SplitState(const PassContext& context, int task_graph, bool of_experts, bool of_windows)
    : plan(context.plan),
      graph(*plan.graph),
      first_entry(context.request.state_of),
      here(task_graph),
      experts(of_experts),
      axes(split_axes(plan.task_graphs[task_graph], experts)),
      axis(axes.front()),
      parts(plan.mesh(task_graph).pieces(axes)),
      by_segments(sums_by_segments(plan)),
      pieces(!by_segments && !experts && context.options.flag("pieces")),
      deals(context.options.flag("pieces")),
      uneven(!by_segments && context.options.flag("uneven")),
      windows(of_windows && pieces),
      rows_move(experts && axes.size() == 1 && find_cut(plan.batch_of_class(plan.class_of(task_graph)), axis)),
      nodes(plan, windows),
      at(graph.value_count()),
      decided(at.size(), false),
      kept_whole(at.size(), false),
      crosses(at.size(), false),
      wishes(at.size()),
      origins(graph) {}

Status SplitState::prepare() {
  EPL_TRY(find_pins());
  describe_leaves();
  find_kept_whole();
  return {};
}

bool SplitState::alike(int task_graph) const {
  if (task_graph == every_task_graph) return false;
  const std::vector<int> over = split_axes(plan.task_graphs[task_graph], experts);
  return !over.empty() && plan.mesh(task_graph).pieces(over) == parts;
}

// What the user wants of values. Where a scope has experts as well, their axes do not cut it.
Status SplitState::find_pins() {
  EPL_ASSIGN(pins, pinned_dims(plan, first_entry == nullptr));
  for (const Value v : pins.ids()) {
    const int there = plan.value_task_graph[v];
    if (!alike(there) || (experts && !split_axes(plan.task_graphs[there], false).empty())) pins[v] = -1;
  }
  return {};
}

void SplitState::describe_leaves() {
  for (const Value v : graph.value_ids()) {
    decided[v] = !is_state(graph.value(v).kind) || !alike(plan.value_task_graph[v]);
    if (first_entry && !decided[v]) take_stored(v);
  }
}

// Entries of one plan share their state.
void SplitState::take_stored(Value v) {
  const Value there = first_entry->graph->find(graph.value(v).name);
  if (!there) return;
  decided[v] = true;
  at[v] = place_of(first_entry->shardings[there]);
}

// What leaves to the caller; and to another TaskGraph, where stages would else change how nodes are cut, and with that
// the order of their sums.
void SplitState::find_kept_whole() {
  for (const Graph::Output& output : graph.outputs) kept_whole[output.value] = true;
  for (const NodeId n : graph.node_ids()) {
    const int to = plan.node_task_graph[n];
    for (Value v : graph.node(n).inputs) {
      if (!v || to == every_task_graph || plan.value_task_graph[v] == to) continue;
      // Within a stage it is brought from one way of lying to the other. Which ranks have a stage changes nothing.
      const int from = plan.value_task_graph[v];
      if (plan.task_graphs[to].stage == plan.task_graphs[from].stage) continue;
      crosses[v] = true;
      if (!alike(to)) kept_whole[v] = decided[v] = true;
    }
  }
}

std::vector<PinnedOperand> SplitState::pinned_operands(const Node& node) const {
  std::vector<PinnedOperand> found;
  const auto pinned = [&](Value v) { return v && pins[v] >= 0; };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value v = node.inputs[i];
    if (pinned(v) && !decided[v]) found.push_back({v, false, i, pins[v]});
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const Value v = node.outputs[o];
    if (pinned(v)) found.push_back({v, true, o, pins[v]});
  }
  return found;
}

OperandShardings SplitState::operands_of(NodeId n, const CutFactor& factor) const {
  NodeSharding sharding;
  sharding.factors.resize(rule_of(n).factors.size());
  if (factor) sharding.factors[factor.factor] = {{.axes = axes, .outer = factor.outer, .of = factor.of}};
  return operand_shardings(extended_of(n), sharding);
}

void SplitState::find_wishes() {
  if (windows) wishes = beside_forward(plan, at, axis);
  const auto beside = wishes;
  for (const NodeId n : graph.node_ids().reversed()) {
    const Node& node = graph.node(n);
    if (node.phase == Phase::forward) break;
    const ShardingRule& rule = rule_of(n);
    const auto wish = [&](const CutFactor& factor) {
      const OperandShardings operands = operands_of(n, factor);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const Value v = node.inputs[i];
        if (v && !beside[v]) wishes[v] = place_of(operands.inputs[i]);
      }
    };
    bool updates = false;
    for (size_t i = 0; i < node.inputs.size() && node.phase == Phase::update; ++i) {
      if (!node.inputs[i] || graph.value(node.inputs[i]).kind != ValueKind::parameter) continue;
      updates = true;
      const CutPlace& place = at[node.inputs[i]];
      const CutFactor factor = place ? factor_at(rule, rule.inputs[i], place) : CutFactor();
      if (factor || !place) wish(factor);
      break;
    }
    if (updates || work(n) > 0 || (experts && picks(n))) continue;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const auto& wished = wishes[node.outputs[o]];
      // Whole sums are made of pieces as well, and so is the norm of a gradient.
      if (!wished || ((windows || node.phase == Phase::update) && !*wished)) continue;
      const CutFactor factor = *wished ? factor_at(rule, rule.outputs[o], *wished) : CutFactor();
      if (factor || !*wished) wish(factor);
      break;
    }
  }
}

}  // namespace epl
