// The making of the local graph of one class of ranks, for `partition` (core/program/local_graph.h).
#pragma once

#include <map>
#include <optional>
#include <set>

#include "core/base/check.h"
#include "core/ir/op.h"
#include "core/program/local_graph.h"
#include "core/program/padding.h"
#include "core/program/piece_body.h"
#include "core/program/reshard.h"

namespace epl {

class Partition {
 public:
  Partition(const Plan& plan, int rank_class, const std::vector<Boundary>& boundaries)
      : plan_(plan),
        global_(*plan.graph),
        here_(rank_class),
        mesh_(plan.meshes[rank_class]),
        boundaries_(boundaries),
        now_(global_.value_count()),
        received_(now_.size()) {}
  // The body of a node, into the graph of its TaskGraph.
  Partition(const Plan& body, const Partition& outer, LocalGraph& into)
      : plan_(body),
        global_(*body.graph),
        here_(outer.here_),
        mesh_(outer.mesh_),
        boundaries_(outer.boundaries_),
        local_(into),
        now_(global_.value_count()),
        received_(now_.size()) {}

  Result<LocalGraph> run();

 private:
  const Sharding& stored(Value v) const { return plan_.shardings[v]; }
  bool made_here(Value v) const { return plan_.class_of(v) == here_; }
  bool placed_here(NodeId n) const;
  BlockKind kind(int block) const { return local_.blocks[block].kind; }

  // Values that each micro-batch has for itself and something behind the loop takes.
  void find_means();
  bool wants_mean(Value v) const { return !wants_mean_.empty() && wants_mean_[v]; }
  // Their sums over micro-batches, behind a node that gives some, and what is made of these when the loop has ended.
  Status sum_over_time(NodeId n, int block);
  void take_means(int block);
  // Nodes that ranks run in one another's place (core/program/partition_dealt.cc): where a node is dealt and leads, the
  // nodes of all pieces, none for a piece that runs it for nothing.
  const std::vector<NodeId>* dealt_like(NodeId n) const;
  bool leads(NodeId n) const { return plan_.node_leader.empty() || !plan_.node_leader[n] || plan_.node_leader[n] == n; }
  // What each rank has of several values that lie alike, one of each piece, side by side: [pieces, ...], of which all
  // ranks have all or each its own.
  Result<Value> moved_stack(Value local, const TensorType& one, const Sharding& lies, bool own, const Sharding& wanted,
                            bool wanted_own, const Dealt& dealt, const Node& at, int block);
  // A value that is dealt, as a node wants it that is not.
  Result<Value> taken(Value v, const Sharding& wanted, Phase user, int block);
  // Operand i of a node that is dealt, where each rank has another one: it gets its own.
  Result<Value> handed(NodeId n, size_t i, const Sharding& wanted, int block);
  // Results that are dealt where they are made and stored on all ranks.
  Status give_to_all(NodeId n, int block);
  // Without what ranks have for nothing.
  Result<Value> masked(Value local, Value global, const Node& user, int block);

  // A value as a block takes it.
  Value& in_block(Value v, bool behind);

  // A node in a block, and what goes over the boundary behind it.
  Status visit(NodeId n, int block);

  // What `pre` has computed is computed again where its TaskGraph sees the samples.
  bool is_again(NodeId n, const BlockId& block) const;

  // All classes come by all boundaries in one order, so that no ranks wait for each other in a ring.
  Status pass_on(const Boundary& b, int block);

  // An input of which a piece is not a run of the caller's memory: all of it comes in, and its pieces are sliced out.
  bool staged(Value v) const;
  // How it lies here before a node asks for it.
  Sharding lies(Value v) const;

  // Of several classes each has the inputs and constants that its nodes use, and one has each state; what is nobody's
  // is the first one's.
  ByValue<bool> leaves_here() const;

  void copy_leaves();

  LocalPort port(const std::string& name, Value v, const Sharding& sharding) const;

  // The cuts that the batch of the graph has.
  Sharding of_batch(Value v, const Sharding& sharding) const;
  // As it leaves the graph: cut by the batch alone, in the way of the class.
  Sharding as_given(Value v) const;

  // The operand as the node wants it. What is gathered in the forward pass is gathered again in the backward pass: it
  // is in pieces so that nobody has to keep all of it.
  // With routes, rows that go to their owners alone.
  struct Routes;
  Result<Value> operand(Value v, const Sharding& wanted, Phase user, int block, const Routes* routes = nullptr);

  Status place(NodeId n, int block, bool again);
  struct Placement;
  Status take_operands(Placement& p);
  Status fit_to_pieces(Placement& p);
  void type_results(Placement& p, bool again);
  Status give_results(Placement& p);
  Status add_later(const Placement& p);

  // A sum over the batch runs over each lane by itself: the node is there once for each of them. `types` are those of
  // its results over all lanes.
  Status place_in_lanes(const Node& old, const Node& node, int64_t lanes, const OperandShardings& operands,
                        const std::vector<TensorType>& types, int block);

  Value joined(const std::vector<Value>& lanes, const Sharding& sharding, const Node& old, int block);

  // Nodes that a builder adds behind one of the plan.
  template <class F> Value write(const Node& behind, const char* suffix, int block, F f) {
    Builder b(local_.graph, behind.phase);
    b.set_scope(cat(behind.name, suffix));
    const NodeId last{local_.graph.node_count() - 1};
    const Value made = f(b);
    EPL_CHECK(b.status().ok(), b.status().to_string());
    for (const NodeId n : local_.graph.node_ids().after(last)) local_.graph.node(n).region = block;
    return made;
  }

  // A node's operand with what it may read in place of padding.
  Result<Value> unpadded(Value v, const Sharding& lies, const ReadPadding& read, const Node& user, int block);

  // A number for each piece that these axes make, of which a rank gets its own.
  Result<Value> of_piece(const Tensor& all, const std::vector<int>& axes, const Node& old, int block);

  // The same where all ranks draw alike, and each micro-batch anew.
  Status count_over_time(Node& node, int block);
  // Elements are numbered over all pieces: the node gets the number of its first one, and learns how they go on.
  Status count_on(Node& node, const PieceCut& cut, const OperandShardings& operands, int block);

  // Windows slide along a cut dimension: operands get the borders that they read of other pieces, and the node the
  // attributes that go with them.
  Status reach_over(NodeId n, Node& node, const PieceCut& cut, int block);
  // Positions that windows have found along the cut dimension, within all of operand 0 instead of what a piece reads.
  Result<Value> numbered(Value positions, NodeId n, const PieceCut& cut, int block);

  // Indices into a dimension that ranks share out become indices into the piece that is here; those into other pieces
  // are out of its range. Returns which these are.
  Result<Value> own(Value& indices, const PieceCut& cut, const Node& old, int block);

  // Where the rows of a node that picks by `indices` go: which rank of `axis` has what they pick. None where these are
  // not rows, or not all of them.
  struct Routes {
    int axis = -1;
    int64_t here = 0;  // of what is picked, how much a rank has
    Value owners;
  };
  std::optional<Routes> routes_of(NodeId n, const PieceCut& cut, const OperandShardings& operands, Value indices,
                                  int block);
  // The one move that brings rows to all ranks, or answers back, along dimension 0.
  static bool moves_rows(const std::vector<Move>& moves, const Sharding& pieces, const Routes& routes);
  // Whether moves bring rows of all ranks, over the axis of the routes first: these go to their owners alone.
  bool brings_rows(const std::vector<Move>& moves, const Sharding& pieces, const Routes& routes) const;
  // What then stands for the moves.
  Value dispatched(Value now, const std::vector<Move>& moves, const Routes& routes, const std::string& name,
                   Phase phase, int block);
  // A result that is known where its row is owned goes back there; false where it is wanted in another way.
  Result<bool> give_back(Value global, Value given, const Sharding& as, const Routes& routes, const Node& old,
                         int block);

  // What a rank adds to a sum of picked elements: nothing where another rank has them. That is -0: any other number of
  // a sum keeps its bits, -0 too.
  Value zero_elsewhere(Value given, Value elsewhere, const PieceCut& cut, size_t o, const Node& old, int block);

  // A node along whose cut dimension its kernel cannot work: the nodes of its body, each with its own cuts.
  Status place_body(NodeId n, const OperandShardings& operands, const PieceCut& pieces, int block);

  // The result, if the move has one.
  Value append(const Move& move, std::string name, std::vector<Value> operands, Phase phase, int block);

  // From what the node gives, for each lane where it sums over them, to how the value is stored. What is due after a
  // move that ends with the loop waits for the next block.
  Status store(Value global, std::vector<Value> lanes, const Sharding& given, const Node& old, int block);

  void carry_on(int block);

  // By the binary tree.
  Value sum(std::vector<Value> lanes, const std::string& name, Phase phase, int block);

  // Pieces over axes that do not cut the batch are gathered.
  Result<Value> given(Value v);

  Status finish();

  struct Waiting {
    Value global;
    std::optional<Move> move;  // or a sum of lanes
    std::vector<Value> lanes;
    Phase phase;
    BlockKind block;
  };
  struct Moved {
    Sharding as;
    Value piece;
    std::optional<Phase> phase;  // for the nodes of this phase alone
    Value owners;                // of its rows, where it has no others
  };

  const Plan& plan_;
  const Graph& global_;
  const int here_;
  const Mesh& mesh_;
  const std::vector<Boundary>& boundaries_;
  LocalGraph own_;
  LocalGraph& local_ = own_;
  ByValue<Value> now_;
  ByValue<std::optional<Sharding>> received_;  // of those from another TaskGraph, how they lie
  ByValue<bool> wants_mean_;                   // none: of no value
  ByValue<Value> mean_;                        // over micro-batches; before that, their sum
  std::multimap<Value, Moved> moved_;          // of the block at hand
  std::set<Value> zero_padding_;               // local values whose padding is zero
  struct Unpadded {
    Value from;
    ReadPadding read;
    Value made;
  };
  std::vector<Unpadded> unpadded_;                 // of the block at hand
  std::vector<std::pair<Value, Routes>> routes_;   // of the block at hand, by indices
  std::vector<std::pair<AxisCut, Value>> filled_;  // of the block at hand: which parts of a piece are no padding
  std::vector<Waiting> waiting_;
  std::vector<NodeId> order_;                    // run_order
  std::map<NodeId, std::vector<NodeId>> dealt_;  // see dealt_like
  // Of the block at hand: values as all ranks have them, by leader; and operands that were handed out.
  struct Taken {
    Value leader;
    Sharding as;
    std::optional<Phase> phase;
    Value all;
  };
  struct Handed {
    std::vector<Value> values;
    Sharding as;
    Phase phase;
    Value own;
  };
  std::vector<Taken> taken_;
  std::vector<Handed> handed_;
};

}  // namespace epl
