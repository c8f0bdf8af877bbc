// Builds a new graph from an old one: a rewrite copies what it keeps and inserts what it changes.
#pragma once

#include <vector>

#include "core/ir/graph.h"

namespace epl {

class GraphRewriter {
 public:
  // Copies every leaf of `source` to `target`, with its name, data and order.
  GraphRewriter(const Graph& source, Graph& target);
  // What an old value is now; Value{} for an absent operand. The old value must have been copied or set.
  Value operator[](Value old) const;
  bool has(Value old) const { return map_[old.index].index >= 0; }
  void set(Value old, Value now) { map_[old.index] = now; }
  // Copies a node with its operands as they are now.
  NodeId copy(NodeId old);
  // Copies the graph's outputs and updates, once all nodes are done.
  void finish();

 private:
  const Graph& source_;
  Graph& target_;
  std::vector<Value> map_;
};

// The same graph without nodes whose results no output and no update needs, and without constants that nothing uses.
Graph without_dead_nodes(const Graph& graph);

}  // namespace epl
