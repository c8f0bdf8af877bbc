// split: how the nodes of split scopes are cut over the ranks of mesh axis "split".
//
// Each TaskGraph is gone through in the order of the graph, expert scopes first. A node takes the factor, or none, that
// costs least: work that stays uncut, and bytes that move. Nodes with much work are cut wherever a rule
// allows it; the others follow their operands. A cut begins in a dimension of a weight: those that come of the model's
// inputs, as samples and positions, are left alone. A parameter is stored as its first user needs it, is not gathered
// again, and its gradient lies as it does. With these costs the two products of a feed-forward block are cut by columns
// and by rows, and an attention by heads (Megatron-LM, Shoeybi et al. 2019), and so is what was not foreseen.
//
// Where windows slide over a dimension of the inputs (rows of an image) a cut may begin there: weights stay whole,
// ranks read over borders. As that decides for all that follows, the graph is gone through both ways (`split.spatial`).
#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "core/strategy/deal.h"
#include "core/strategy/reasons.h"
#include "core/strategy/segments.h"
#include "core/strategy/shared_weights.h"
#include "core/strategy/split_cost.h"
#include "core/strategy/split_ways.h"
#include "core/strategy/windows.h"

namespace epl {
namespace {

class Splitting {
 public:
  Splitting(PassContext& context, int task_graph, bool experts, bool windows = false)
      : plan_(context.plan), state_(context, task_graph, experts, windows) {}

  Status run() {
    EPL_TRY(state_.prepare());
    const Graph& graph = state_.graph;
    bool wished = false;
    for (const NodeId n : graph.node_ids()) {
      if (graph.node(n).phase != Phase::forward && !wished) state_.find_wishes();
      wished = wished || graph.node(n).phase != Phase::forward;
      EPL_TRY(decide(n));
    }
    for (const Graph::Update& update : graph.updates) {
      if (state_.alike(plan_.value_task_graph[update.state])) state_.at[update.next] = state_.at[update.state];
      state_.crosses[update.next] = state_.crosses[update.state];
    }
    write();
    return {};
  }
  // Whether a product of the TaskGraph is cut.
  bool found_any() const { return found_any_; }
  int windows() const { return windows_cut_; }  // nodes that are cut along a dimension of their windows
  double cost() const { return cost_; }
  // Tells the plan why.
  void explain() const { reasons_.tell(plan_, state_.parts); }

 private:
  Status decide(NodeId n) {
    const Node& node = state_.graph.node(n);
    if (node.op->takes_any_operands) return {};  // on pieces as on all of it
    state_.origins.visit(node, state_.rule_of(n));
    if (!state_.alike(plan_.node_task_graph[n])) return {};
    const std::vector<PinnedOperand> pinned = state_.pinned_operands(node);
    const std::vector<CutFactor> ways = node.op->random ? std::vector<CutFactor>() : ways_to_cut(state_, n, pinned);
    SplitChoice best = weigh(state_, n, {});
    bool as_pinned = obeys(best, pinned);
    const double whole = best.cost;
    double cheapest_cut = std::numeric_limits<double>::infinity();
    for (const CutFactor& factor : ways) {
      SplitChoice choice = weigh(state_, n, factor);
      cheapest_cut = std::min(cheapest_cut, choice.cost);
      if (!obeys(choice, pinned) || (as_pinned && choice.cost >= best.cost)) continue;
      best = std::move(choice);
      as_pinned = true;
    }
    if (!as_pinned) return refuse(n, pinned, ways);
    apply(n, best);
    cost_ += best.cost;
    if (!state_.is_here(n)) return {};
    const bool left = !best.factor && state_.work(n) > 0 && node.phase == Phase::forward;
    if (left)
      reasons_.add_whole(
          node, ways.empty() ? "no dimension that they may share out divides" : "any cut moves more than it saves");
    reasons_.add(n, reason(n, pinned, ways.size(), best, whole, cheapest_cut));
    return {};
  }

  Status refuse(NodeId n, const std::vector<PinnedOperand>& pinned, const std::vector<CutFactor>& ways) const {
    std::vector<NodePlaces> places;
    for (const CutFactor& factor : ways) places.push_back(weigh(state_, n, factor));
    return refused_pins(plan_, n, pinned, places, state_.parts);
  }

  // Costs are bytes moved; work that stays uncut counts as bytes.
  std::string reason(NodeId n, const std::vector<PinnedOperand>& pinned, size_t ways, const SplitChoice& best,
                     double whole, double cheapest_cut) const {
    const Graph& graph = state_.graph;
    const Node& node = graph.node(n);
    if (best.factor) {
      std::string from;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] && best.inputs[i] && state_.at[node.inputs[i]] == best.inputs[i] && state_.work(n) == 0)
          from = graph.value(node.inputs[i]).name;
      }
      return cat(
          "cut by ", dimension_text(graph, n, state_.rule_of(n), best.factor.factor),
          from.empty() ? "" : cat(", as ", from, " is"),
          pinned.empty() ? "" : cat(", as the strategy asks for ", pins_text(graph, pinned)), ": ",
          moves_text(best.cost, whole),
          state_.extended_of(n).window(best.factor.factor) >= 0 ? "; its windows read over the borders of pieces" : "");
    }
    if (ways > 0)
      return cat("whole on every rank, because ",
                 cheapest_cut > 9e18 ? "no cut is possible" : cat("with a cut ", moves_text(cheapest_cut, whole)));
    if (node.op->random) return "whole on every rank, because it draws random numbers";
    if (state_.work(n) <= 0) return "";
    return cat("whole on every rank, because no dimension has ", state_.parts, state_.uneven ? "" : " equal",
               " pieces");
  }

  void apply(NodeId n, const SplitChoice& choice) {
    const Node& node = state_.graph.node(n);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value v = node.inputs[i];
      if (!v || state_.decided[v]) continue;
      state_.decided[v] = true;
      state_.at[v] = choice.inputs[i];
    }
    if (!choice.factor) return;
    state_.begun = state_.begun || state_.work(n) > 0;
    windows_cut_ += state_.extended_of(n).window(choice.factor.factor) >= 0;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (!state_.kept_whole[node.outputs[o]]) state_.at[node.outputs[o]] = choice.outputs[o];
    }
    if (!state_.is_here(n)) return;
    found_any_ = found_any_ || state_.work(n) > 0;
    auto& factors = plan_.node_shardings[n].factors;
    const bool added = state_.is_added(n, choice.factor);
    const size_t wanted = added ? state_.rule_of(n).factors.size() : state_.extended_of(n).added;
    if (factors.size() < wanted) factors.resize(wanted);
    add_cut(factors[choice.factor.factor], choice.factor.outer, choice.factor.of);
  }

  void add_cut(Cuts& cuts, int64_t outer, int64_t of) const {
    cuts.insert(std::ranges::upper_bound(cuts, outer, {}, &AxisCut::outer),
                {.axes = state_.axes, .outer = outer, .of = of});
  }

  void write() {
    for (const Value v : state_.at.ids()) {
      const CutPlace& place = state_.at[v];
      if (place && !state_.crosses[v] && plan_.value_task_graph[v] == state_.here)
        add_cut(plan_.shardings[v].dims[place.dim], place.outer, place.of);
    }
  }

  Plan& plan_;
  SplitState state_;
  int windows_cut_ = 0;
  double cost_ = 0;
  bool found_any_ = false;
  Reasons reasons_;
};

// Experts that are nodes of their own, as a loop over them is exported, are dealt to ranks where they are alike. Else
// each of them is cut over the ranks, which run one program, so that a rank has as much of the weights.
Status split_experts(PassContext& c) {
  std::vector<int> none;
  for (int t = 0; t < std::ssize(c.plan.task_graphs); ++t) {
    const TaskGraph& found = c.plan.task_graphs[t];
    if (found.experts.empty()) continue;
    // Where no product is found, what moves and adds may have been cut all the same: that is taken back. Pins that name
    // other dimensions than those that count experts cut each expert.
    auto before = std::pair(c.plan.shardings, c.plan.node_shardings);
    Splitting splitting(c, t, true);
    const Status status = splitting.run();
    if (status.ok() && splitting.found_any()) {
      splitting.explain();
      continue;
    }
    std::tie(c.plan.shardings, c.plan.node_shardings) = std::move(before);
    const int64_t parts = c.plan.mesh(t).pieces(found.experts);
    std::string why = cat("experts cannot be shared out as its dims say: ", status.message());
    if (status.ok()) {
      EPL_ASSIGN(why, deal_experts(c, t));
    }
    if (why.empty()) continue;
    c.plan.notes.push_back(cat("scope ", found.scope, " (expert ", parts, "): ", why,
                               ", so each expert is cut over the ", parts, " ranks"));
    none.push_back(t);
  }
  for (const int t : none) c.plan.task_graphs[t].experts.clear();
  return {};
}

// Cuts a TaskGraph, beginning in dimensions of windows where that is cheaper or asked for. Entries of one plan agree.
Status cut(PassContext& c, int task_graph) {
  std::string spatial = c.plan.strategy.text("split.spatial");
  if (const Plan* first = c.request.state_of) spatial = cuts_windows(*first) ? "on" : "off";
  Splitting channels(c, task_graph, false);
  const TaskGraph& t = c.plan.task_graphs[task_graph];
  const int64_t parts = c.plan.mesh(task_graph).pieces(split_axes(t, false));
  const bool either = spatial != "off" && !sums_by_segments(c.plan) && has_windows(c.plan, parts);
  const Plan before = either ? c.plan : Plan();
  const Status by_channels_runs = channels.run();
  if (!either) {
    EPL_TRY(by_channels_runs);
    if (spatial == "on") c.plan.notes.push_back("split.spatial: no dimension of windows can be cut, or level layout");
    channels.explain();
    return {};
  }
  Plan by_channels = std::exchange(c.plan, before);
  Splitting windows(c, task_graph, false, true);
  // Pins may leave one way alone.
  const Status by_windows_runs = windows.run();
  if (!by_windows_runs.ok() && (!by_channels_runs.ok() || spatial == "on")) return by_windows_runs;
  const bool cheaper = !by_channels_runs.ok() || spatial == "on" || windows.cost() < channels.cost();
  if (!by_windows_runs.ok() || !cheaper || (by_channels_runs.ok() && windows.windows() == 0)) {
    c.plan = std::move(by_channels);
    channels.explain();
    return {};
  }
  windows.explain();
  c.plan.notes.push_back(
      cat("split.spatial: ", windows.windows(), " nodes slide windows over pieces on ", parts,
          " ranks, and read over their borders: costs ", grouped(static_cast<int64_t>(windows.cost())),
          by_channels_runs.ok() ? cat(", cutting channels ", grouped(static_cast<int64_t>(channels.cost())))
                                : std::string(", as dims asks")));
  return {};
}

}  // namespace

EPL_PASS(split) {
  return {.doc = "cuts the nodes of split scopes over their ranks, and stores what they use in pieces",
          .options = {{"pieces", true, false, "also along dimensions that kernels need whole"},
                      {"uneven", true, false, "also where pieces are not equal"}},
          .run = [](PassContext& c) -> Status {
            const bool propagated = c.plan.shardings.size() == c.plan.graph->value_count();
            if (!propagated) return invalid("it needs place and propagate before it");
            EPL_TRY(pinned_dims(c.plan, c.request.state_of == nullptr).status());  // also where nothing is cut
            EPL_TRY(split_experts(c));
            for (int t = 0; t < std::ssize(c.plan.task_graphs); ++t) {
              if (split_axes(c.plan.task_graphs[t], false).empty()) continue;
              EPL_TRY(cut(c, t));
            }
            EPL_TRY(check_pins(c.plan, c.request.state_of == nullptr));
            return check_shared_weights(c.plan);
          }};
}

}  // namespace epl
