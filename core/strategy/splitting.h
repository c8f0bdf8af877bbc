// One walk over the graph that decides how the nodes of TaskGraphs are split, see core/strategy/passes/split.cc. Its
// steps: splitting.cc goes from node to node, split_ways.cc says which cuts a node may have, and split_cost.cc what
// each of them costs.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/strategy/batch_cut.h"
#include "core/strategy/origins.h"
#include "core/strategy/pass.h"
#include "core/strategy/pins.h"
#include "core/strategy/reasons.h"
#include "core/strategy/segments.h"
#include "core/strategy/split_nodes.h"

namespace epl {

class Splitting {
 public:
  // `task_graphs`: that are cut alike, see same_cut.
  Splitting(PassContext& context, std::vector<int> task_graphs, bool experts, bool windows = false)
      : plan_(context.plan),
        graph_(*plan_.graph),
        cost_(context.cost),
        first_entry_(context.request.state_of),
        all_(std::move(task_graphs)),
        here_(all_.front()),
        experts_(experts),
        axes_(split_axes(plan_.task_graphs[here_], experts)),
        axis_(axes_.front()),
        degree_(plan_.mesh(here_).shards(axes_)),
        by_segments_(sums_by_segments(plan_)),
        shards_(!by_segments_ && !experts && context.options.flag("pieces")),
        expert_rows_(context.options.flag("pieces")),
        uneven_(!by_segments_ && context.options.flag("uneven")),
        windows_(windows && shards_),
        rows_move_(experts && axes_.size() == 1 &&
                   plan_.batch_of_virtual_device(plan_.virtual_device_of(here_)).cuts_over(axis_)),
        at_(graph_.value_count()),
        decided_(at_.size(), false),
        kept_replicated_(at_.size(), false),
        crosses_(at_.size(), false),
        wishes_(at_.size()),
        origins_(graph_) {}
  Status run();
  // Whether a product of the TaskGraph is cut.
  bool found_any() const { return found_any_; }
  int windows() const { return windows_cut_; }  // nodes that are cut along a dimension of their windows
  double seconds() const { return seconds_; }
  double cost() const { return cost_of_all_; }  // with what the strategy asks for
  // Tells the plan why.
  void explain() const { reasons_.tell(plan_, degree_); }

 private:
  // So many nodes behind one another are looked at for what becomes of a result.
  static constexpr int foresight = 12;
  // A slice takes about as long as the kernel behind it saves because it reads less. What is left decides between ways
  // that are equal else.
  static constexpr double sliced = 0.02;

  // Whether a TaskGraph is cut over as many ranks as this one: then its nodes are decided here as well, as if the two
  // were one, though each pass writes for its own. So stages do not change how nodes are cut.
  bool alike(int task_graph) const {
    if (task_graph == every_task_graph) return false;
    const std::vector<int> axes = split_axes(plan_.task_graphs[task_graph], experts_);
    return !axes.empty() && plan_.mesh(task_graph).shards(axes) == degree_;
  }
  const ExtendedRule& extended_of(NodeId n) const { return nodes_->rule(n); }
  const ShardingRule& rule_of(NodeId n) const { return extended_of(n).rule; }
  double work(NodeId n) const { return nodes_->work(n); }
  bool is_added(NodeId n, const CutFactor& factor) const {
    return static_cast<size_t>(factor.factor) >= extended_of(n).added;
  }
  bool has_indices(NodeId n) const { return extended_of(n).row && extended_of(n).row->indices >= 0; }
  bool is_here(NodeId n) const { return is_here(plan_.node_task_graph[n]); }
  bool is_here(int task_graph) const { return std::ranges::find(all_, task_graph) != all_.end(); }
  // Whether a node scatters rows into slots of experts.
  bool fills(NodeId n) const { return experts_ && extended_of(n).scatters_rows() && is_here(n); }

  void describe_leaves();
  // Entries of one plan share their state.
  void take_stored(Value v);
  // What leaves to the caller; and to another TaskGraph, where stages would else change how nodes are cut, and with
  // that the order of their sums.
  void find_kept_replicated();
  // How the gradients of weights are wanted, once it is known where these lie: back from the update, through nodes of
  // little work.
  void find_wishes();
  CutPosition position_of(const Sharding& sharding) const { return epl::position_of(sharding, axis_); }

  struct Choice : NodePositions {
    CutFactor factor;
    double seconds = 0;  // beyond its share of the work
    double asked = 0;    // what is added because the strategy asks for a split
    double cost() const { return seconds + asked; }
    void add(double more, double times) {
      seconds += more;
      asked += more * (times - 1);
    }
  };

  Status decide(NodeId n);

  // What the user wants of values. Where a scope has experts as well, their axes do not cut it.
  Status find_pins();
  bool pinned(Value v) const { return v && pins_[v] >= 0; }
  // Of the operands, those that lie as this node needs them.
  std::vector<PinnedOperand> pinned_operands(const Node& node) const;
  Status refuse(NodeId n, const std::vector<PinnedOperand>& pinned, const std::vector<CutFactor>& ways) const;
  // Seconds as they are; the strategy may ask for more than what they say.
  std::string reason(NodeId n, const std::vector<PinnedOperand>& pinned, size_t ways, const Choice& best,
                     double replicated, double cheapest_cut) const;

  // The factors that operands bring, and of a node with much work all others, as what uses its results would like them.
  std::vector<CutFactor> candidates(NodeId n, const std::vector<PinnedOperand>& pinned) const;
  // Shards of a run of so many granules: AxisCut::of.
  int64_t of(int64_t granules) const { return granules % degree_ == 0 ? 0 : granules; }
  // A factor in runs of one element.
  CutFactor all_of(NodeId n, int f) const { return {f, 1, of(rule_of(n).factors[f].size)}; }

  // What it costs the nodes of the forward pass that use a value to have it cut at this position.
  double cost_of_uses(Value v, const CutPosition& position, int ahead) const;
  OperandShardings operands_of(NodeId n, const CutFactor& factor) const {
    NodeSharding sharding;
    sharding.factors.resize(rule_of(n).factors.size());
    if (factor) sharding.factors[factor.factor] = {{.axes = axes_, .outer = factor.outer, .of = factor.of}};
    return operand_shardings(extended_of(n), sharding);
  }
  // The largest shard of an uneven cut, in granules.
  int64_t largest(const CutFactor& factor) const { return (factor.of + degree_ - 1) / degree_; }

  // Whether there are shards of the factor, inside the runs that a cut of the batch leaves. Segments of a sum begin
  // where no shard ends, which only equal ones grant.
  bool fits(NodeId n, const CutFactor& factor) const;
  double bytes(Value v) const { return static_cast<double>(graph_.type(v).bytes()); }

  // Seconds of moving, as of one copy, one micro-batch and neighbouring ranks: how a node is split must not depend on
  // how the batch is cut, since its bits may not either. Latencies and launches are left out: collectives of several
  // nodes become one (core/program/together.h), and elementwise nodes one kernel.
  double together(Collective::Kind kind, double contributed) const {
    return cost_.moving(kind, RankGroup::of_first(degree_), contributed);
  }
  double share(double all) const { return all / static_cast<double>(degree_); }
  double gathering(Value v) const { return together(Collective::Kind::all_gather, share(bytes(v))); }
  double scattering(Value v) const { return together(Collective::Kind::reduce_scatter, share(bytes(v))); }
  double slicing(Value v) const { return sliced * cost_.memory(2 * share(bytes(v))); }
  double summing(double of_bytes) const { return together(Collective::Kind::all_reduce, of_bytes); }
  // Of what a rank does not have.
  double others() const { return static_cast<double>(degree_ - 1) / static_cast<double>(degree_); }

  Choice weigh(NodeId n, const CutFactor& factor) const;
  // To bring an operand to where it is wanted, and, in the forward pass, to bring its gradient back: it is a sum over
  // the ranks where the operand is not cut, and shards where it is.
  void add_operand(Choice& choice, const Node& node, Value v, const CutPosition& wanted) const;

  void apply(NodeId n, const Choice& choice);
  void add_cut(Cuts& cuts, int64_t outer, int64_t of) const;
  void write();

  Plan& plan_;
  const Graph& graph_;
  const CostModel& cost_;
  const Plan* const first_entry_;  // null: this is it
  const std::vector<int> all_;     // the TaskGraphs whose nodes it cuts
  const int here_;                 // the first of them
  const bool experts_;             // it cuts what counts experts alone
  const std::vector<int> axes_;    // over these, all of them together
  const int axis_;                 // the first, by which they are found
  const int64_t degree_;           // of the split
  const bool by_segments_;
  bool shards_;         // the factors of PartitionRules may be cut
  bool expert_rows_;    // so may those of rows that gather the weights of their expert
  bool uneven_;         // shards need not be equal
  const bool windows_;  // a cut may begin in a dimension of windows
  // Elsewhere the axis cuts the batch: each row comes from a rank, and its answer goes back there, to nobody else.
  const bool rows_move_;
  int windows_cut_ = 0;
  double seconds_ = 0, cost_of_all_ = 0;
  std::optional<SplitNodes> nodes_;             // once it runs
  ByValue<CutPosition> at_;                     // where this axis cuts it
  ByValue<bool> decided_;                       // its position is known; state is where it is needed first
  ByValue<int> pins_;                           // the dimension that the user wants to be cut, -1 for any
  ByValue<bool> kept_replicated_;               // the caller gets it
  ByValue<bool> crosses_;                       // it goes to another TaskGraph, and is stored replicated
  ByValue<std::optional<CutPosition>> wishes_;  // where it is wanted in the end, nowhere or somewhere
  bool found_any_ = false, begun_ = false;
  Reasons reasons_;
  bool wished_ = false;  // wishes_ are known
  Origins origins_;
};

}  // namespace epl
