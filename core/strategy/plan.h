// What the passes decide, beside the graph: shapes in the graph stay global. `partition` (core/program) is the one
// rewrite that acts on a plan.
//
// The batch is an axis of U units. It is cut in this order: over ranks (mesh axis "data"), over time (mesh axis
// "micro_batch"), and inside a kernel (mesh axis "unit"): U = data * micro_batch * unit, each a power of two. Sums over
// the batch run over the units of a kernel, then over micro-batches, then over ranks: one binary tree, whatever the
// cut. TaskGraphs of different degrees of data parallelism have more axes of ranks in this order ("data2", ...); one of
// a smaller degree has several runs of units in each call instead, which it sums apart (Mesh::lanes).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/ir/graph.h"
#include "core/strategy/sharding.h"
#include "core/strategy/strategy.h"

namespace epl {

// The nodes of one scope, and the mesh over the ranks that run them.
struct TaskGraph {
  std::string scope;
  Mesh mesh;
  int nodes = 0;
  std::vector<int> split = {};  // axes of the mesh over which nodes are cut otherwise than by the batch
};

// The nodes of a TaskGraph that run in one call are a block, which has a kind. More kinds come with schedules that cut
// a micro-batch's work finer.
enum class BlockKind : uint8_t {
  main,     // forward and backward in one call, for every micro-batch
  once,     // the same for all micro-batches, before them
  pre,      // sums over the batch that samples need, from inputs alone; for every micro-batch
  mid,      // what comes of these sums
  post,     // what comes of sums over all micro-batches, and the update
  forward,  // forward and backward apart, where the calls of several micro-batches interleave
  backward,
};
// In the order in which they stand in a program; a rank first calls them in this order.
inline constexpr BlockKind all_blocks[] = {BlockKind::once,    BlockKind::pre,      BlockKind::mid, BlockKind::main,
                                           BlockKind::forward, BlockKind::backward, BlockKind::post};
std::string_view block_name(BlockKind kind);
std::optional<BlockKind> block_named(std::string_view name);
bool block_loops(BlockKind kind);  // called for every micro-batch
// Its calls may come between those of other blocks, and a micro-batch's values go from one of these to the next.
bool block_takes_turns(BlockKind kind);

// A rank runs a block once.
struct BlockCall {
  BlockKind block = BlockKind::main;
  int64_t micro_batch = 0;
  friend bool operator==(const BlockCall&, const BlockCall&) = default;
};

// In Plan::node_task_graph: each TaskGraph runs the node on those operands that are its own
// (OpDef::takes_any_operands).
inline constexpr int every_task_graph = -1;

struct Plan {
  std::shared_ptr<const Graph> graph;
  Strategy strategy;
  std::vector<TaskGraph> task_graphs;         // their meshes have the same axes, of the same kinds
  std::vector<std::vector<BlockCall>> calls;  // by TaskGraph: what each of its ranks does in a step
  std::vector<Sharding> shardings;  // by value: as it is stored; what its producer gives is brought there at once
  std::vector<NodeSharding> node_shardings;
  std::vector<int> node_task_graph;   // by node
  std::vector<int> value_task_graph;  // by value: where it is made; of a leaf, where it is used first
  std::vector<BlockKind> node_block;  // by node
  std::vector<bool> node_cloned;      // by node: also computed in `pre` (again in main or forward)
  int64_t batch = 0;                  // samples of the global batch, 0 when no input has any
  std::string passes;                 // the pass list that made this plan
  std::vector<std::string> notes;     // why: one sentence for each decision that a user may wonder about

  // The mesh of the first TaskGraph, for what is the same in all.
  const Mesh& mesh() const { return task_graphs.front().mesh; }
  const Mesh& mesh(int task_graph) const { return task_graphs[static_cast<size_t>(task_graph)].mesh; }
  int64_t units() const { return mesh().units(); }
  int64_t micro_batches() const { return mesh().size(micro_batch_axis); }
  int64_t ranks() const;  // of the job
  int task_graph_of_rank(int rank) const;
};

// A value that another TaskGraph needs than the one that makes or, of state, holds it.
struct Boundary {
  Value value;
  int from = 0, to = 0;
  BlockKind block = BlockKind::main;  // of both TaskGraphs, in which it is sent and received
  // At the head of that block: it is state, or complete when the loop before it has ended. Else right behind its
  // producer.
  bool late = false;
  friend bool operator==(const Boundary&, const Boundary&) = default;
};
// Of a step, in the order of values.
Result<std::vector<Boundary>> boundaries(const Plan& plan);
bool is_state(ValueKind kind);
// Fills value_task_graph from node_task_graph.
void find_value_task_graphs(Plan& plan);

// What a node takes and gives, by its rule and its sharding.
Result<OperandShardings> operand_shardings(const Plan& plan, NodeId node);
// What a pass may not leave behind.
Status verify_plan(const Plan& plan);
// That no ranks wait for each other in a ring.
Status verify_order(const Plan& plan);
std::string print_plan(const Plan& plan);
// Reads the decisions that print_plan wrote, for the same graph.
Result<Plan> parse_plan(std::string_view text, std::shared_ptr<const Graph> graph);

}  // namespace epl
