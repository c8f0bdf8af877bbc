// What one rank runs: the graph with local shapes, in the order of its blocks, with the boundaries between shards of
// the batch and between ranks (slices, sums, sends) as nodes. `partition` is the one rewrite that acts on a plan.
//
// The ranks of a virtual device share this graph and differ in their coordinates alone.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/backend/machine.h"
#include "core/strategy/plan.h"

namespace epl {

// Where a caller's tensor meets the local graph.
struct LocalPort {
  std::string name;
  Value value;
  TensorType global_type;
  Sharding sharding;  // by the batch: of one dimension, or of none
  int dim() const { return sharding.cut_dim(batch_axis); }
  bool emitted = true;  // of an output: it leaves here, not from another virtual device
};

// State of which a rank holds a shard.
struct LocalState {
  std::string name;
  TensorType global_type;
  Sharding sharding;
  Tensor initial;                   // all of it; empty: zeros
  std::string representative = {};  // of what is rank-local: the state in whose place it lies, itself perhaps
};

// State that lies in another memory than that in which kernels compute.
struct StateHome {
  std::string name;
  MemoryKind memory = MemoryKind::host;
};

struct LocalGraph {
  Graph graph;                    // Node::region is the block of the node, in `blocks`
  std::vector<LocalPort> inputs;  // in the order of the model's inputs
  std::vector<LocalPort> outputs;
  std::vector<LocalState> cut_state;
  std::vector<StateHome> homes;
  std::set<std::string> again;  // names of nodes that the backward pass computes again
  int virtual_device = 0;
  Mesh mesh;
  BatchLayout batch;  // Plan::batch_of_virtual_device
  std::vector<BlockCall> calls;
  std::vector<SendWait> waits;  // of calls for sends
  std::vector<BlockId> blocks;  // in the order of their first calls
  bool commits = false;         // a step changes the state of some rank, if not of this one
  const BlockId& block(const Node& node) const { return blocks[node.region]; }
  MemoryKind home(std::string_view state) const;
  int find(const BlockId& block) const;  // -1 if it is never called
  // The first block that sees every sample, before any update: main, or forward where that is a block of its own.
  int sample_block() const;
  int64_t micro_batches() const { return mesh.size(micro_batch_axis); }
};

// By virtual device.
Result<std::vector<LocalGraph>> partition(const Plan& plan);

std::string print_local(const LocalGraph& local);
Result<LocalGraph> parse_local(std::string_view text);

}  // namespace epl
