// The walk: what is known before it, each node in its order, and what is written behind it.
#include "core/strategy/splitting.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace epl {

Status Splitting::run() {
  nodes_.emplace(plan_, cost_, windows_);
  EPL_TRY(find_pins());
  describe_leaves();
  find_kept_replicated();
  for (const NodeId n : graph_.node_ids()) {
    if (graph_.node(n).phase != Phase::forward && !wished_) find_wishes();
    EPL_TRY(decide(n));
  }
  for (const Graph::Update& update : graph_.updates) {
    if (alike(plan_.value_task_graph[update.state])) at_[update.next] = at_[update.state];
    crosses_[update.next] = crosses_[update.state];
  }
  write();
  return {};
}

void Splitting::describe_leaves() {
  for (const Value v : graph_.value_ids()) {
    decided_[v] = !is_state(graph_.value(v).kind) || !alike(plan_.value_task_graph[v]);
    if (first_entry_ && !decided_[v]) take_stored(v);
  }
}

// A weight may be stored in shards that no node takes (core/strategy/weight_shards.h). These are gathered, and say
// nothing of where its nodes are cut. What the optimizer alone has lies as it is stored.
void Splitting::take_stored(Value v) {
  const Graph& first = *first_entry_->graph;
  const Value there = first.find(graph_.value(v).name);
  if (!there) return;
  decided_[v] = true;
  const CutPosition stored = position_of(first_entry_->shardings[there]);
  bool taken = false, taken_so = false;
  for (const NodeId n : first.node_ids()) {
    const Node& node = first.node(n);
    if (node.phase != Phase::forward) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != there) continue;
      taken = true;
      taken_so = taken_so || position_of(operand_shardings(*first_entry_, n).inputs[i]) == stored;
    }
  }
  if (taken_so || !taken) at_[v] = stored;
}

void Splitting::find_kept_replicated() {
  for (const Graph::Output& output : graph_.outputs) kept_replicated_[output.value] = true;
  for (const NodeId n : graph_.node_ids()) {
    const int here = plan_.node_task_graph[n];
    for (Value v : graph_.node(n).inputs) {
      if (!v || here == every_task_graph || plan_.value_task_graph[v] == here) continue;
      // Within a stage it is brought from one way of lying to the other. Which ranks have a stage changes nothing.
      const int there = plan_.value_task_graph[v];
      if (plan_.task_graphs[here].stage == plan_.task_graphs[there].stage) continue;
      crosses_[v] = true;
      if (!alike(here)) kept_replicated_[v] = decided_[v] = true;
    }
  }
}

Status Splitting::decide(NodeId n) {
  const Node& node = graph_.node(n);
  if (node.op->takes_any_operands) return {};  // on shards as on all of it
  origins_.visit(node, rule_of(n));
  if (!alike(plan_.node_task_graph[n])) return {};
  const std::vector<PinnedOperand> pinned = pinned_operands(node);
  const std::vector<CutFactor> ways = node.op->random ? std::vector<CutFactor>() : candidates(n, pinned);
  Choice best = weigh(n, {});
  bool as_pinned = obeys(best, pinned);
  const Choice replicated = best;
  double cheapest_cut = std::numeric_limits<double>::infinity();
  for (const CutFactor& factor : ways) {
    Choice choice = weigh(n, factor);
    cheapest_cut = std::min(cheapest_cut, choice.seconds);
    if (!obeys(choice, pinned) || (as_pinned && choice.cost() >= best.cost())) continue;
    best = std::move(choice);
    as_pinned = true;
  }
  if (!as_pinned) return refuse(n, pinned, ways);
  apply(n, best);
  seconds_ += best.seconds;
  cost_of_all_ += best.cost();
  const bool left = !best.factor && work(n) > 0 && node.phase == Phase::forward;
  if (left && is_here(n))
    reasons_.add_replicated(
        node, ways.empty() ? "no dimension that they may share out divides" : "any cut moves more than it saves");
  if (is_here(n)) reasons_.add(n, reason(n, pinned, ways.size(), best, replicated.seconds, cheapest_cut));
  return {};
}

Status Splitting::find_pins() {
  EPL_ASSIGN(pins_, pinned_dims(plan_, first_entry_ == nullptr));
  for (const Value v : pins_.ids()) {
    const int at = plan_.value_task_graph[v];
    if (!alike(at) || (experts_ && !split_axes(plan_.task_graphs[at], false).empty())) pins_[v] = -1;
  }
  return {};
}

std::vector<PinnedOperand> Splitting::pinned_operands(const Node& node) const {
  std::vector<PinnedOperand> found;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value v = node.inputs[i];
    if (pinned(v) && !decided_[v]) found.push_back({v, false, i, pins_[v]});
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const Value v = node.outputs[o];
    if (pinned(v)) found.push_back({v, true, o, pins_[v]});
  }
  return found;
}

Status Splitting::refuse(NodeId n, const std::vector<PinnedOperand>& pinned, const std::vector<CutFactor>& ways) const {
  std::vector<NodePositions> positions;
  for (const CutFactor& factor : ways) positions.push_back(weigh(n, factor));
  return refused_pins(plan_, n, pinned, positions, degree_);
}

std::string Splitting::reason(NodeId n, const std::vector<PinnedOperand>& pinned, size_t ways, const Choice& best,
                              double replicated, double cheapest_cut) const {
  const Node& node = graph_.node(n);
  if (best.factor) {
    std::string from;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] && best.inputs[i] && at_[node.inputs[i]] == best.inputs[i] && work(n) == 0)
        from = graph_.value(node.inputs[i]).name;
    }
    return cat("cut by ", dimension_text(graph_, n, rule_of(n), best.factor.factor),
               from.empty() ? "" : cat(", as ", from, " is"),
               pinned.empty() ? "" : cat(", as the strategy asks for ", pins_text(graph_, pinned)), ": ",
               takes_text(best.seconds, replicated),
               extended_of(n).window(best.factor.factor) >= 0 ? "; its windows read over the borders of shards" : "");
  }
  if (ways > 0)
    return cat("replicated on every rank, because ",
               std::isinf(cheapest_cut) ? "no cut is possible" : cat("a cut ", takes_text(cheapest_cut, replicated)));
  if (node.op->random) return "replicated on every rank, because it draws random numbers";
  if (work(n) <= 0) return "";
  return cat("replicated on every rank, because no dimension has ", degree_, uneven_ ? "" : " equal", " shards");
}

void Splitting::apply(NodeId n, const Choice& choice) {
  const Node& node = graph_.node(n);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i] || decided_[node.inputs[i]]) continue;
    decided_[node.inputs[i]] = true;
    at_[node.inputs[i]] = choice.inputs[i];
  }
  if (!choice.factor) return;
  begun_ = begun_ || work(n) > 0;
  windows_cut_ += extended_of(n).window(choice.factor.factor) >= 0;
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    if (!kept_replicated_[node.outputs[o]]) at_[node.outputs[o]] = choice.outputs[o];
  }
  if (!is_here(n)) return;
  found_any_ = found_any_ || work(n) > 0;
  auto& factors = plan_.node_shardings[n].factors;
  const size_t wanted = is_added(n, choice.factor) ? rule_of(n).factors.size() : extended_of(n).added;
  if (factors.size() < wanted) factors.resize(wanted);
  add_cut(factors[choice.factor.factor], choice.factor.outer, choice.factor.of);
}

void Splitting::add_cut(Cuts& cuts, int64_t outer, int64_t of) const {
  cuts.insert(std::ranges::upper_bound(cuts, outer, {}, &AxisCut::outer), {.axes = axes_, .outer = outer, .of = of});
}

void Splitting::write() {
  for (const Value v : at_.ids()) {
    if (at_[v] && !crosses_[v] && is_here(plan_.value_task_graph[v]))
      add_cut(plan_.shardings[v].dims[at_[v].dim], at_[v].outer, at_[v].of);
  }
}

}  // namespace epl
