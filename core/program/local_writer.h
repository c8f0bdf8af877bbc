// Writes nodes into one block of the local graph of a rank.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/program/local_graph.h"
#include "core/program/reshard.h"

namespace epl {

// Refers to the graph, which outlives it.
class LocalWriter {
 public:
  // Nothing is written in an earlier phase than `least`: what is computed again belongs to the phase that needs it.
  LocalWriter(LocalGraph& local, int block, Phase least = Phase::forward)
      : local_(local), block_(block), least_(least) {}

  int block() const { return block_; }
  Phase phase(Phase wanted) const { return std::max(wanted, least_); }
  BlockKind kind() const { return local_.blocks[block_].kind; }
  const Mesh& mesh() const { return local_.mesh; }
  const BatchLayout& batch() const { return local_.batch; }
  Graph& graph() const { return local_.graph; }
  const TensorType& type(Value v) const { return local_.graph.type(v); }
  const std::string& name(Value v) const { return local_.graph.value(v).name; }

  // The result, if the move has one.
  Value append(const Move& move, std::string name, std::vector<Value> operands, Phase phase) const;
  // One behind the other, each with its suffix behind the name.
  Value append(const std::vector<Move>& moves, const std::string& name, Value v, Phase phase) const;
  // Nodes that a builder adds behind one of the plan.
  template <class F> Value write(const Node& behind, const char* suffix, F f) const {
    Builder b(local_.graph, phase(behind.phase));
    b.set_scope(cat(behind.name, suffix));
    const NodeId last{local_.graph.node_count() - 1};
    const Value made = f(b);
    EPL_CHECK(b.status().ok(), b.status().to_string());
    for (const NodeId n : local_.graph.node_ids().after(last)) local_.graph.node(n).region = block_;
    return made;
  }
  // By the binary tree.
  Value sum(std::vector<Value> runs, const std::string& name, Phase phase) const;
  // Runs, which the batch cuts as this sharding says, side by side; `axis` is one that cuts it. `inside`: see take_run.
  Value join(const std::vector<Value>& runs, const Sharding& sharding, const Node& old, int axis = batch_axis,
             int64_t inside = 1) const;
  // A number for each shard that these axes make, of which a rank gets its own.
  Result<Value> of_shard(const Tensor& all, const std::vector<int>& axes, const Node& old) const;

 private:
  LocalGraph& local_;
  const int block_;
  const Phase least_;
};

}  // namespace epl
