// What the passes decide, beside the graph: shapes in the graph stay global. `partition` (core/program) is the one
// rewrite that acts on a plan.
//
// The batch is an axis of U units. It is cut in this order: over ranks (mesh axis "data"), over time (mesh axis "micro_batch"), and
// inside a kernel (mesh axis "unit"): U = data * micro_batch * unit, each a power of two. Sums over the batch run over
// the units of a kernel, then over micro-batches, then over ranks: one binary tree, whatever the cut.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/ir/graph.h"
#include "core/strategy/strategy.h"

namespace epl {

struct MeshAxis {
  enum class Kind : uint8_t { rank, time, unit };
  std::string name;
  int64_t size = 1;
  Kind kind = Kind::rank;
};
struct Mesh {
  std::vector<MeshAxis> axes;
  int find(std::string_view name) const;            // -1 if there is none
  int64_t size(std::string_view name) const;        // 1 if there is none
  int64_t ranks() const;                            // product of the rank axes
  // The ranks that differ from `rank` in their coordinate on `axis` alone, ascending, itself among them. Ranks are numbered with the
  // first rank axis as the major one.
  std::vector<int> ranks_along(std::string_view axis, int64_t rank) const;
};

// Per dimension the mesh axes that cut it, major first. `reduced`: the value is a sum over these axes, complete only
// after the reductions that `partition` puts right behind its producer.
struct Sharding {
  std::vector<std::vector<int>> dims;
  std::vector<int> reduced;
  int64_t outer = 1;     // the cut dimension is `outer` times a run of the batch: more than 1 where samples are not its major part
  int cut_dim() const;   // the dimension that any axis cuts, -1 for none
  friend bool operator==(const Sharding&, const Sharding&) = default;
};

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
inline constexpr BlockKind all_blocks[] = {BlockKind::once, BlockKind::pre, BlockKind::mid, BlockKind::main, BlockKind::post};  // in order
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
  std::vector<Sharding> shardings;       // by value
  std::vector<int> node_task_graph;      // by node
  std::vector<BlockKind> node_block;     // by node
  std::vector<bool> node_cut;            // by node: it works on a piece of the batch
  std::vector<bool> node_cloned;         // by node: also computed in `pre` (recomputed in main)
  std::vector<TaskGraph> task_graphs;
  std::vector<Action> schedule;
  int64_t batch = 0;                     // samples of the global batch, 0 when no input has any
  std::string passes;                    // the pass list that made this plan
  std::vector<std::string> notes;        // why: one sentence for each decision that a user may wonder about

  int64_t units() const { return mesh.size("data") * mesh.size("micro_batch") * mesh.size("unit"); }
  int64_t micro_batches() const { return mesh.size("micro_batch"); }
};

// What a pass may not leave behind.
Status verify_plan(const Plan& plan);
std::string print_plan(const Plan& plan);
// Reads the decisions that print_plan wrote, for the same graph.
Result<Plan> parse_plan(std::string_view text, std::shared_ptr<const Graph> graph);

}  // namespace epl
