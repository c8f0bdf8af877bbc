// What the passes decide, beside the graph: shapes in the graph stay global. `partition` (core/program) is the one
// rewrite that acts on a plan.
//
// The batch is an axis of U units. It is cut in this order: over ranks (mesh axis "data"), over time (mesh axis
// "micro_batch"), and inside a kernel (mesh axis "unit"): U = data * micro_batch * unit, each a power of two. Sums over
// the batch run over the units of a kernel, then over micro-batches, then over ranks: one binary tree, whatever the
// cut.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/ir/graph.h"
#include "core/strategy/sharding.h"
#include "core/strategy/strategy.h"

namespace epl {

// The nodes of one scope and the ranks they run on (the VirtualDevice: a slice of the mesh).
struct VirtualDevice {
  int64_t first_rank = 0, ranks = 1;
};
struct TaskGraph {
  std::string scope;
  VirtualDevice device;
  int nodes = 0;
};

// When a node runs in a step. Loops run once for every micro-batch.
enum class BlockKind : uint8_t { main, once, pre, mid, post };
inline constexpr BlockKind all_blocks[] = {BlockKind::once, BlockKind::pre, BlockKind::mid, BlockKind::main,
                                           BlockKind::post};  // in order
std::string_view block_name(BlockKind kind);
bool block_loops(BlockKind kind);

// A step as a table of actions.
struct Action {
  BlockKind block;
  int64_t micro_batch = 0;
};

struct Plan {
  std::shared_ptr<const Graph> graph;
  Strategy strategy;
  Mesh mesh;
  std::vector<Sharding> shardings;  // by value: as it is stored; what its producer gives is brought there at once
  std::vector<NodeSharding> node_shardings;
  std::vector<int> node_task_graph;   // by node
  std::vector<BlockKind> node_block;  // by node
  std::vector<bool> node_cloned;      // by node: also computed in `pre` (recomputed in main)
  std::vector<TaskGraph> task_graphs;
  std::vector<Action> schedule;
  int64_t batch = 0;               // samples of the global batch, 0 when no input has any
  std::string passes;              // the pass list that made this plan
  std::vector<std::string> notes;  // why: one sentence for each decision that a user may wonder about

  int64_t units() const { return mesh.size("data") * mesh.size("micro_batch") * mesh.size("unit"); }
  int64_t micro_batches() const { return mesh.size("micro_batch"); }
};

// What a node takes and gives, by its rule and its sharding.
Result<OperandShardings> operand_shardings(const Plan& plan, NodeId node);
// What a pass may not leave behind.
Status verify_plan(const Plan& plan);
std::string print_plan(const Plan& plan);
// Reads the decisions that print_plan wrote, for the same graph.
Result<Plan> parse_plan(std::string_view text, std::shared_ptr<const Graph> graph);

}  // namespace epl
