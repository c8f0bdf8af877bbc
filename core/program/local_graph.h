// What one rank runs: the graph with local shapes, in the order of its blocks, with the boundaries between pieces of
// the batch (batch_slice, accumulate, all_reduce) as nodes. `partition` is the one rewrite that acts on a plan.
//
// All ranks of a replicated plan are of one class: they share this graph and differ in rank number alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/strategy/plan.h"

namespace epl {

// Where a caller's tensor meets the local graph: `dim` is the dimension cut into pieces, -1 for none; `outer` as in
// Sharding.
struct LocalPort {
  std::string name;
  Value value;
  TensorType global_type;
  int dim = -1;
  int64_t outer = 1;
};

struct LocalGraph {
  Graph graph;                    // Node::region is the BlockKind of the node
  std::vector<LocalPort> inputs;  // in the order of the model's inputs
  std::vector<LocalPort> outputs;
  int64_t ranks = 1;
  int64_t micro_batches = 1;
  int64_t units = 1;  // of one micro-batch of one rank
  std::vector<Action> schedule;
  BlockKind block(const Node& node) const { return static_cast<BlockKind>(node.region); }
};

Result<LocalGraph> partition(const Plan& plan);

std::string print_local(const LocalGraph& local);
Result<LocalGraph> parse_local(std::string_view text);

}  // namespace epl
