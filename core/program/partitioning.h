// The making of the local graph of one virtual device, for `partition` (core/program/local_graph.h). Here it is decided
// what a rank runs and in which order, and which moves bring values to where they are wanted. Nodes are written by a
// LocalWriter; what a node needs that works on a shard is in core/program/shard_nodes.h and row_routes.h.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "core/ir/op.h"
#include "core/program/local_writer.h"
#include "core/program/padding.h"
#include "core/program/row_routes.h"
#include "core/program/shard_nodes.h"

namespace epl {

class Partition {
 public:
  Partition(const Plan& plan, int virtual_device, const std::vector<Boundary>& boundaries)
      : plan_(plan),
        global_(*plan.graph),
        here_(virtual_device),
        mesh_(plan.meshes[virtual_device]),
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
  // How the TaskGraph cuts the batch where a value is made.
  BatchLayout batch_of(Value v) const { return plan_.batch_of(plan_.value_task_graph[v]); }
  bool made_here(Value v) const { return plan_.virtual_device_of(v) == here_; }
  bool assigned_here(NodeId n) const;

  // Values that each micro-batch has for itself and something behind the loop takes.
  void find_means();
  bool wants_mean(Value v) const { return !wants_mean_.empty() && wants_mean_[v]; }
  // Their sums over micro-batches, behind a node that gives some, and what is made of these when the loop has ended.
  Status sum_over_time(NodeId n, const LocalWriter& w);
  void take_means(const LocalWriter& w);
  // Nodes that ranks run in one another's place (core/program/partition_rank_local.cc): where a node is rank-local and
  // is the representative, the nodes of all shards, none for a shard that runs it for nothing.
  const std::vector<NodeId>* alternatives(NodeId n) const;
  bool is_representative(NodeId n) const {
    return plan_.node_representative.empty() || !plan_.node_representative[n] || plan_.node_representative[n] == n;
  }
  // A value that is rank-local, as a node wants it that is not.
  Result<Value> taken(Value v, const Sharding& wanted, Phase user, const LocalWriter& w);
  // Operand i of a node that is rank-local, where each rank has another one: it gets its own.
  Result<Value> handed(NodeId n, size_t i, const Sharding& wanted, const LocalWriter& w);
  // Results that are rank-local where they are made and stored on all ranks.
  Status give_to_all(NodeId n, const LocalWriter& w);
  // Without what ranks have for nothing.
  Result<Value> masked(Value local, Value global, const Node& user, const LocalWriter& w);

  // A value as a block takes it.
  Value& in_block(Value v, bool behind);

  // A node in a block, and what goes over the boundary behind it.
  Status visit(NodeId n, const LocalWriter& w);

  // Where a node of the backward pass takes a value whose node is computed again: that node and those before it, once.
  Status recompute(Value v, const LocalWriter& w);

  // What `pre` has computed is computed again where its TaskGraph sees the samples.
  bool is_again(NodeId n, const BlockId& block) const;

  // All virtual devices come by all boundaries in one order, so that no ranks wait for each other in a ring.
  Status pass_on(const Boundary& b, const LocalWriter& w);

  // Results that lie in another memory until another phase takes them.
  std::vector<StateHome> results_away() const;

  // An input of which a shard is not a run of the caller's memory: all of it comes in, and its shards are sliced out.
  bool staged(Value v) const;
  // How it lies here before a node asks for it.
  Sharding lies(Value v) const;

  // Of several virtual devices each has the inputs and constants that its nodes use, and one has each state; what is
  // nobody's is the first one's.
  ByValue<bool> leaves_here() const;

  void copy_leaves();

  LocalPort port(const std::string& name, Value v, const Sharding& sharding) const;

  // The cuts that the batch of the graph has.
  Sharding of_batch(Value v, const Sharding& sharding) const;
  // As it leaves the graph: cut by the batch alone, in the way of the virtual device.
  Sharding as_given(Value v) const;

  // The operand as the node wants it. What is gathered in the forward pass is gathered again in the backward pass: it
  // is in shards so that nobody has to keep all of it.
  // With routes, rows that go to their owners alone.
  Result<Value> operand(Value v, const Sharding& wanted, Phase user, const LocalWriter& w,
                        const RowRoutes* routes = nullptr);

  Status make_local(NodeId n, const LocalWriter& w, bool again);
  struct LocalNode;
  Status take_operands(LocalNode& p);
  Status fit_to_shards(LocalNode& p);
  void type_results(LocalNode& p, bool again);
  Status give_results(LocalNode& p);
  Status add_later(const LocalNode& p);

  // A sum over the batch is made of each run by itself: the node is there once for each of them.
  Status add_for_each_run(const LocalNode& p);
  // What a call or a unit has of a sum, as it is added to others.
  Value part(Value global, Value local, const Node& old, const LocalWriter& w) const;
  std::vector<Value> with_units_added(const std::vector<Value>& runs, const BatchLayout& batch, const Node& old,
                                      const LocalWriter& w) const;

  // A node's operand with what it may read in place of padding.
  Result<Value> unpadded(Value v, const Sharding& lies, const ReadPadding& read, const Node& user,
                         const LocalWriter& w);

  // Where the rows of a node with `indices` go. None where these are not rows, or not all of them.
  std::optional<RowRoutes> routes_of(NodeId n, const ShardCut& cut, const OperandShardings& operands, Value indices,
                                     const LocalWriter& w);
  // A result that is known where its row is owned goes back there; false where it is wanted in another way.
  Result<bool> give_back(Value global, Value given, const Sharding& as, const RowRoutes& routes, const Node& old,
                         const LocalWriter& w);

  // A node along whose cut dimension its kernel cannot work: the nodes of its body, each with its own cuts.
  Status make_local_body(NodeId n, const OperandShardings& operands, const ShardCut& shards, const LocalWriter& w);

  // From what the node gives, for each run where it sums over them, to how the value is stored. What is pending after
  // a move that ends with the loop waits for the next block.
  Status store(Value global, std::vector<Value> runs, const Sharding& given, const Node& old, const LocalWriter& w);

  void carry_on(const LocalWriter& w);

  // Shards over axes that do not cut the batch are gathered.
  Result<Value> given(Value v);

  Status finish();

  struct Waiting {
    Value global;
    std::optional<Move> move;  // or a sum of runs
    std::vector<Value> runs;
    Phase phase;
    BlockKind block;
  };
  // What was made in the current block, for who wants it again.
  struct Known {
    struct Moved {
      Sharding as;
      Value shard;
      std::optional<Phase> phase;  // for the nodes of this phase alone
      Value owners;                // of its rows, where it has no others
      int last_use = 0;            // nodes that there were of the rank
    };
    struct Unpadded {
      Value from;
      ReadPadding read;
      Value made;
    };
    struct Taken {  // as all ranks have it
      Value representative;
      Sharding as;
      std::optional<Phase> phase;
      Value all;
    };
    struct Handed {  // operands that were handed out
      std::vector<Value> values;
      Sharding as;
      Phase phase;
      Value own;
    };
    std::multimap<Value, Moved> moved;
    std::vector<Unpadded> unpadded;
    std::vector<std::pair<Value, RowRoutes>> routes;  // by indices
    std::vector<std::pair<AxisCut, Value>> filled;    // which granules of a shard are no padding
    std::vector<Taken> taken;
    std::vector<Handed> handed;
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
  std::set<Value> zero_padding_;               // local values whose padding is zero
  Known known_;
  ByNode<bool> is_recomputed_;  // already
  std::vector<Waiting> waiting_;
  std::vector<NodeId> order_;                           // run_order
  std::map<NodeId, std::vector<NodeId>> alternatives_;  // see alternatives()
};

}  // namespace epl
