#include "core/strategy/pins.h"

#include <algorithm>

#include "core/base/shown.h"
#include "core/base/suggestion.h"
#include "core/base/text.h"
#include "core/ir/op.h"
#include "core/strategy/segments.h"

namespace epl {
namespace {

bool may_be_pinned(const Graph& graph, const ValueInfo& info) {
  if (info.kind == ValueKind::result) return graph.node(info.producer).phase == Phase::forward;
  return info.kind == ValueKind::parameter;
}

// The pin of a TaskGraph that names the value, -1 for none. A name may have a glob's characters.
int pin_of(const TaskGraph& t, const std::string& name) {
  const auto found =
      std::ranges::find_if(t.pins, [&](const DimPin& pin) { return pin.value == name || glob_match(pin.value, name); });
  return found == t.pins.end() ? -1 : static_cast<int>(found - t.pins.begin());
}

// "scope default: dims asks for dimension 1 of w (f32[8,4])", and why that cannot be.
Status refused(Code code, const Plan& plan, Value v, int64_t dim, const auto&... why) {
  const ValueInfo& info = plan.graph->value(v);
  const TaskGraph& t = plan.task_graphs[plan.value_task_graph[v]];
  return Status(
      code,
      cat("scope ", t.scope, ": dims asks for dimension ", dim, " of ", info.name, " (", info.type.text(), ")", why...),
      info.name);
}

// Scopes around others hand their pins down, so it is enough if one TaskGraph has what a pin names.
Status check_all_named(const Plan& plan, const std::vector<std::vector<bool>>& named) {
  for (int t = 0; t < std::ssize(named); ++t) {
    for (size_t p = 0; p < named[t].size(); ++p) {
      const std::string& pattern = plan.task_graphs[t].pins[p].value;
      bool anywhere = false;
      for (size_t other = 0; other < named.size(); ++other) {
        for (size_t q = 0; q < named[other].size(); ++q)
          anywhere = anywhere || (named[other][q] && plan.task_graphs[other].pins[q].value == pattern);
      }
      if (anywhere) continue;
      std::vector<std::string> known;
      for (const Value v : plan.graph->value_ids()) {
        const ValueInfo& info = plan.graph->value(v);
        if (may_be_pinned(*plan.graph, info) && plan.value_task_graph[v] == t) known.push_back(info.name);
      }
      return error(Code::not_found, "scope ", plan.task_graphs[t].scope, ": dims names ", shown(pattern, 200),
                   ", which is no weight of its nodes and no result of one", choices(pattern, known));
    }
  }
  return {};
}

// Which values another virtual device needs, which gets all of them.
ByValue<bool> crossing_values(const Plan& plan) {
  ByValue<bool> crosses(plan.graph->value_count());
  for (const NodeId n : plan.graph->node_ids()) {
    const int at = plan.node_task_graph[n];
    if (at == every_task_graph) continue;
    for (Value v : plan.graph->node(n).inputs)
      if (v && plan.virtual_device_of(v) != plan.virtual_device_of(at)) crosses[v] = true;
  }
  return crosses;
}

}  // namespace

std::vector<int> split_axes(const TaskGraph& t, bool experts) {
  if (experts) return t.experts;
  std::vector<int> rest = t.split;
  std::erase_if(rest, [&](int axis) { return std::ranges::find(t.experts, axis) != t.experts.end(); });
  return rest;
}

Result<ByValue<int>> pinned_dims(const Plan& plan, bool all) {
  const Graph& graph = *plan.graph;
  ByValue<int> dims(graph.value_count(), -1);
  if (std::ranges::all_of(plan.task_graphs, [](const TaskGraph& t) { return t.pins.empty(); })) return dims;
  std::vector<std::vector<bool>> named;  // by TaskGraph and pin
  for (const TaskGraph& t : plan.task_graphs) named.emplace_back(t.pins.size(), false);
  const ByValue<bool> crosses = crossing_values(plan);
  for (const Value v : graph.value_ids()) {
    const ValueInfo& info = graph.value(v);
    if (plan.value_task_graph[v] == every_task_graph || !may_be_pinned(graph, info)) continue;
    const int at = plan.value_task_graph[v];
    const TaskGraph& t = plan.task_graphs[at];
    const int found = pin_of(t, info.name);
    if (found < 0) continue;
    named[at][found] = true;
    const int64_t asked = t.pins[found].dim;
    const int64_t dim = asked < 0 ? asked + info.type.ndim() : asked;
    if (dim < 0 || dim >= info.type.ndim())
      return refused(Code::invalid_argument, plan, v, asked, ", which has ", info.type.ndim(), " dimensions");
    if (plan.ranks() == 1) continue;
    if (t.split.empty())
      return refused(Code::invalid_argument, plan, v, asked, ", and no ranks share out the nodes of this scope");
    if (std::ranges::find(graph.outputs, v, &Graph::Output::value) != graph.outputs.end())
      return refused(Code::unsupported, plan, v, asked, ", which leaves to the caller: each rank has all of it");
    if (crosses[v])
      return refused(Code::unsupported, plan, v, asked, ", which nodes on other ranks need too: they get all of it");
    dims[v] = static_cast<int>(dim);
  }
  if (all) EPL_TRY(check_all_named(plan, named));
  return dims;
}

Status check_pins(const Plan& plan, bool all) {
  EPL_ASSIGN(const ByValue<int> dims, pinned_dims(plan, all));
  for (const Value v : plan.graph->value_ids()) {
    if (dims[v] < 0) continue;
    const TaskGraph& t = plan.task_graphs[plan.value_task_graph[v]];
    const std::vector<int> rest = split_axes(t, false);
    if (plan.shardings[v].cut_dim((rest.empty() ? t.experts : rest).front()) != dims[v])
      return refused(Code::unsupported, plan, v, dims[v], ", and no node of the scope uses it so");
  }
  return {};
}

bool obeys(const NodePositions& positions, const PinnedOperand& pin) {
  return (pin.result ? positions.outputs : positions.inputs)[pin.at].dim == pin.dim;
}

bool obeys(const NodePositions& positions, const std::vector<PinnedOperand>& pins) {
  return std::ranges::all_of(pins, [&](const PinnedOperand& pin) { return obeys(positions, pin); });
}

std::string pins_text(const Graph& graph, const std::vector<PinnedOperand>& pins) {
  std::vector<std::string> texts;
  for (const PinnedOperand& pin : pins)
    texts.push_back(cat("dimension ", pin.dim, " of ", graph.value(pin.value).name));
  return join(texts, " and ");
}

Status refused_pins(const Plan& plan, NodeId n, const std::vector<PinnedOperand>& pins,
                    const std::vector<NodePositions>& ways, int64_t ranks) {
  const Node& node = plan.graph->node(n);
  const std::string what = cat("node ", node.name, " (", node.op->name, ")");
  for (const PinnedOperand& pin : pins) {
    if (std::ranges::any_of(ways, [&](const NodePositions& way) { return obeys(way, pin); })) continue;
    const Sharding& batch = plan.shardings[pin.value];
    std::string why = cat(what, " cannot be cut there");
    if (node.op->random) {
      why = cat(what, " draws random numbers: it is replicated");
    } else if (!batch.dims[pin.dim].empty()) {
      why = "there it is cut already, by the batch or by experts";
    } else if (sums_by_segments(plan)) {
      why += " at level layout: shards must be equal, and of full segments";
    }
    return refused(Code::unsupported, plan, pin.value, pin.dim, " over ", ranks, " ranks, and ", why);
  }
  const std::vector<PinnedOperand> others(pins.begin() + 1, pins.end());
  return refused(Code::unsupported, plan, pins.front().value, pins.front().dim, " over ", ranks, " ranks and for ",
                 pins_text(*plan.graph, others), ", and ", what, " cannot be cut so at once");
}

}  // namespace epl
