#include "core/strategy/joined_experts.h"

#include <algorithm>
#include <optional>

#include "core/ir/op.h"

namespace epl {
namespace {

// How tokens come to slots of experts by index, and how they leave them: the operand, or result (-1), of a node that
// only moves rows, along which indices gather or scatter.
std::optional<int> indexed_operand(const Plan& plan, NodeId n) {
  const Node& node = plan.graph->node(n);
  const ExtendedRule& found = plan.rule(n);
  if (node.op->moves != Moves::some || !found.row || found.row->indices < 0) return std::nullopt;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (found.adds_to(found.rule.inputs[i])) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

void join_experts_of(Plan& plan, int experts, int rest) {
  const Graph& graph = *plan.graph;
  ByNode<int>& at = plan.node_task_graph;
  const auto users = graph.users();
  const int size = graph.node_count();
  ByNode<bool> inside(size), before(size), behind(size);  // the scope's own nodes
  ByNode<std::optional<int>> along(size);
  const auto is_forward = [&](NodeId n) { return graph.node(n).phase == Phase::forward; };
  const auto made = [&](Value v) { return v && graph.value(v).producer; };
  const auto maker = [&](Value v) { return graph.value(v).producer; };
  const auto comes = [&](Value v) { return !made(v) || inside[maker(v)]; };
  const auto goes = [&](Value v) {
    const std::vector<NodeId>& all = users[v];
    return std::ranges::any_of(all, is_forward) &&
           std::ranges::all_of(all, [&](NodeId n) { return !is_forward(n) || inside[n]; }) &&
           std::ranges::find(graph.outputs, v, &Graph::Output::value) == graph.outputs.end();
  };
  const auto all_come = [&](NodeId n) {
    const Node& node = graph.node(n);
    const auto& indexed = along[n];
    if (!indexed) return std::ranges::any_of(node.inputs, made) && std::ranges::all_of(node.inputs, comes);
    return *indexed < 0 || (made(node.inputs[*indexed]) && inside[maker(node.inputs[*indexed])]);
  };
  const auto all_go = [&](NodeId n) {
    const auto& indexed = along[n];
    return (indexed && *indexed >= 0) || std::ranges::all_of(graph.node(n).outputs, goes);
  };
  for (const NodeId n : graph.node_ids()) {
    const bool may = is_forward(n) && at[n] == rest;
    if (may) along[n] = indexed_operand(plan, n);
    inside[n] = at[n] == experts || (may && all_come(n));
  }
  for (bool fewer = true; fewer;) {
    fewer = false;
    for (const NodeId n : graph.node_ids().reversed()) {
      if (!inside[n] || at[n] == experts || (all_come(n) && all_go(n))) continue;
      inside[n] = false;
      fewer = true;
    }
  }
  // Slots that are no experts' stay where they are.
  for (const NodeId n : graph.node_ids()) {
    behind[n] = at[n] == experts || std::ranges::any_of(graph.node(n).inputs, [&](Value v) {
                  return made(v) && inside[maker(v)] && behind[maker(v)];
                });
  }
  for (const NodeId n : graph.node_ids().reversed()) {
    before[n] = at[n] == experts;
    for (Value v : graph.node(n).outputs) {
      for (const NodeId user : users[v]) {
        if (inside[user] && before[user]) before[n] = true;
      }
    }
  }
  for (const NodeId n : graph.node_ids()) {
    if (inside[n] && (before[n] || behind[n])) at[n] = experts;
  }
}

}  // namespace epl
