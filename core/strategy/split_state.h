// What the split pass knows while it goes through the graph for one TaskGraph: what may be cut and over which axes,
// where values lie by now, and where they are wanted. Which ways there are to cut a node (core/strategy/split_ways.h)
// and what each costs (core/strategy/split_cost.h) follow from it alone; the pass decides, and writes it down here.
#pragma once

#include <optional>
#include <vector>

#include "core/strategy/batch_cut.h"
#include "core/strategy/origins.h"
#include "core/strategy/pass.h"
#include "core/strategy/pins.h"
#include "core/strategy/split_nodes.h"

namespace epl {

constexpr int split_foresight = 12;  // so many nodes behind one another are looked at for what becomes of a result

struct SplitState {
  // `experts`: what counts experts alone is cut. `windows`: a cut may begin in a dimension of windows.
  SplitState(const PassContext& context, int task_graph, bool experts, bool windows);
  // Where values are wanted by their users: by the caller and other TaskGraphs whole, by pins in pieces.
  Status prepare();

  // Whether a TaskGraph is cut over as many ranks as this one: then its nodes are decided here as well, as if the two
  // were one, though each pass writes for its own. So stages do not change how nodes are cut.
  bool alike(int task_graph) const;
  const ExtendedRule& extended_of(NodeId n) const { return nodes.rule(n); }
  const ShardingRule& rule_of(NodeId n) const { return extended_of(n).rule; }
  double work(NodeId n) const { return nodes.work(n); }
  bool is_added(NodeId n, const CutFactor& factor) const {
    return static_cast<size_t>(factor.factor) >= extended_of(n).added;
  }
  bool picks(NodeId n) const { return extended_of(n).row && extended_of(n).row->indices >= 0; }
  bool is_here(NodeId n) const { return plan.node_task_graph[n] == here; }
  // Whether a node puts rows into slots of experts, as the indices beside them say.
  bool fills(NodeId n) const { return experts && extended_of(n).puts_rows() && is_here(n); }
  CutPlace place_of(const Sharding& sharding) const { return epl::place_of(sharding, axis); }
  // Of the operands and results that are pinned, those that lie as this node needs them.
  std::vector<PinnedOperand> pinned_operands(const Node& node) const;
  // How operands and results lie where the node is cut in this way; whole where it is in none.
  OperandShardings operands_of(NodeId n, const CutFactor& factor) const;
  double bytes(Value v) const { return static_cast<double>(graph.type(v).bytes()); }
  // Of what a rank does not have.
  double others() const { return static_cast<double>(parts - 1) / static_cast<double>(parts); }

  // How the gradients of weights are wanted, once it is known where these lie: back from the update, through nodes of
  // little work.
  void find_wishes();

  const Plan& plan;
  const Graph& graph;
  const Plan* const first_entry;  // null: this is it
  const int here;                 // the TaskGraph whose nodes are cut
  const bool experts;
  const std::vector<int> axes;  // over these, all of them together
  const int axis;               // the first, by which they are found
  const int64_t parts;
  const bool by_segments;
  const bool pieces;  // the factors of PieceRules may be cut
  const bool deals;   // so may those of rows that pick their expert
  const bool uneven;  // pieces need not be equal
  const bool windows;
  // Elsewhere the axis cuts the batch: each row comes from a rank, and its answer goes back there, to nobody else.
  const bool rows_move;
  const SplitNodes nodes;
  ByValue<CutPlace> at;                     // where this axis cuts it
  ByValue<bool> decided;                    // its place is known; state is where it is needed first
  ByValue<int> pins;                        // the dimension that the user wants to be cut, -1 for any
  ByValue<bool> kept_whole;                 // the caller gets it
  ByValue<bool> crosses;                    // it goes to another TaskGraph, and is stored whole
  ByValue<std::optional<CutPlace>> wishes;  // where it is wanted in the end, nowhere or somewhere
  Origins origins;                          // of the node visited last
  bool begun = false;                       // a node with work is cut

 private:
  void describe_leaves();
  void take_stored(Value v);
  void find_kept_whole();
  Status find_pins();
};

}  // namespace epl
