// split: how the nodes of split scopes are cut over the ranks of mesh axis "split".
//
// Each TaskGraph is gone through in the order of the graph, expert scopes first. A node takes the factor, or none, that
// costs least: seconds of work that stays uncut, and of what moves. The strategy has asked for the split, so what stays
// uncut counts many times. Nodes with much work are cut wherever a rule allows it; the others follow their operands. A
// cut begins in a dimension of a weight: those that come of the model's inputs, as samples and positions, are left
// alone. A parameter is stored as its first user needs it, is not gathered again, and its gradient lies as it does.
// With these costs the two products of a feed-forward block are cut by columns and by rows, and an attention by heads
// (Megatron-LM, Shoeybi et al. 2019), and so is what was not foreseen.
//
// Where windows slide over a dimension of the inputs (rows of an image) a cut may begin there: weights stay replicated,
// ranks read over borders. As that decides for all that follows, the graph is gone through both ways (`split.spatial`).
#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/seconds_text.h"
#include "core/strategy/local_experts.h"
#include "core/strategy/shared_weights.h"
#include "core/strategy/splitting.h"
#include "core/strategy/windows.h"

namespace epl {
namespace {

// Experts that are nodes of their own, as a loop over them is exported, are rank-local where they are alike. Else
// each of them is cut over the ranks, which run one program, so that a rank has as much of the weights.
Status split_experts(PassContext& c) {
  std::vector<int> none;
  for (int t = 0; t < std::ssize(c.plan.task_graphs); ++t) {
    const TaskGraph& found = c.plan.task_graphs[t];
    if (found.experts.empty()) continue;
    // Where no product is found, what moves and adds may have been cut all the same: that is taken back. Pins that name
    // other dimensions than those that count experts cut each expert.
    auto before = std::pair(c.plan.shardings, c.plan.node_shardings);
    Splitting splitting(c, {t}, true);
    const Status status = splitting.run();
    if (status.ok() && splitting.found_any()) {
      splitting.explain();
      continue;
    }
    std::tie(c.plan.shardings, c.plan.node_shardings) = std::move(before);
    const int64_t shards = c.plan.mesh(t).shards(found.experts);
    std::string why = cat("experts cannot be shared out as its dims say: ", status.message());
    if (status.ok()) {
      EPL_ASSIGN(why, assign_experts(c, t));
    }
    if (why.empty()) continue;
    c.plan.notes.push_back(cat("scope ", found.scope, " (expert ", shards, "): ", why,
                               ", so each expert is cut over the ", shards, " ranks"));
    none.push_back(t);
  }
  for (const int t : none) c.plan.task_graphs[t].experts.clear();
  return {};
}

// Whether one walk over the graph decides for both: the same axes cut their nodes into as many shards, and the batch
// too. Stages of a pipeline are such, mostly, and a walk for each would go over the whole graph as often.
bool same_cut(const Plan& plan, int a, int b) {
  const auto size = [](const MeshAxis& axis) { return axis.size; };
  return split_axes(plan.task_graphs[a], false) == split_axes(plan.task_graphs[b], false) &&
         plan.batch_of(a) == plan.batch_of(b) &&
         std::ranges::equal(plan.mesh(a).axes, plan.mesh(b).axes, {}, size, size);
}

// Cuts TaskGraphs, beginning in dimensions of windows where that is cheaper or asked for. Entries of one plan agree.
Status cut(PassContext& c, const std::vector<int>& task_graphs) {
  std::string spatial = c.plan.strategy.text("split.spatial");
  if (const Plan* first = c.request.state_of) spatial = cuts_windows(*first) ? "on" : "off";
  Splitting channels(c, task_graphs, false);
  const int first_of_them = task_graphs.front();
  const TaskGraph& t = c.plan.task_graphs[first_of_them];
  const int64_t shards = c.plan.mesh(first_of_them).shards(split_axes(t, false));
  const bool either = spatial != "off" && !sums_by_segments(c.plan) && has_windows(c.plan, shards);
  const Plan before = either ? c.plan : Plan();
  const Status by_channels_runs = channels.run();
  if (!either) {
    EPL_TRY(by_channels_runs);
    if (spatial == "on") c.plan.notes.push_back("split.spatial: no dimension of windows can be cut, or level layout");
    channels.explain();
    return {};
  }
  Plan by_channels = std::exchange(c.plan, before);
  Splitting windows(c, task_graphs, false, true);
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
  c.plan.notes.push_back(cat("split.spatial: ", windows.windows(), " nodes slide windows over shards on ", shards,
                             " ranks, and read over their borders: costs ", seconds_text(windows.seconds()),
                             by_channels_runs.ok() ? cat(", cutting channels ", seconds_text(channels.seconds()))
                                                   : std::string(", as dims asks")));
  return {};
}

}  // namespace

EPL_PASS(split) {
  return {.doc = "cuts the nodes of split scopes over their ranks, and stores what they use in shards",
          .options = {{"pieces", true, false, "also along dimensions that kernels need in full"},
                      {"uneven", true, false, "also where shards are not equal"}},
          .run = [](PassContext& c) -> Status {
            const bool propagated = c.plan.shardings.size() == c.plan.graph->value_count();
            if (!propagated) return invalid("it needs place and propagate before it");
            EPL_TRY(pinned_dims(c.plan, c.request.state_of == nullptr).status());  // also where nothing is cut
            EPL_TRY(split_experts(c));
            std::vector<std::vector<int>> groups;
            for (int t = 0; t < std::ssize(c.plan.task_graphs); ++t) {
              if (split_axes(c.plan.task_graphs[t], false).empty()) continue;
              const auto alike = [&](const std::vector<int>& group) { return same_cut(c.plan, group.front(), t); };
              const auto found = std::ranges::find_if(groups, alike);
              found == groups.end() ? groups.push_back({t}) : found->push_back(t);
            }
            for (const std::vector<int>& group : groups) EPL_TRY(cut(c, group));
            EPL_TRY(check_pins(c.plan, c.request.state_of == nullptr));
            return check_shared_weights(c.plan);
          }};
}

}  // namespace epl
