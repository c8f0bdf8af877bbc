// Graph rewrites turn what exporters took apart into one op again. A row is a pattern with a condition and a
// replacement. Rows live in core/rewrite/rows, one meaning a file.
#pragma once

#include <string>
#include <vector>

#include "core/ir/op.h"
#include "core/ir/rewriter.h"

namespace epl {

// One graph under rewriting, seen from a node that may be the last of a pattern.
class Match {
 public:
  Match(const Graph& graph, const std::vector<int>& uses, NodeId root) : graph_(graph), uses_(uses), root_(root) {}
  const Graph& graph() const { return graph_; }
  const Node& root() const { return graph_.node(root_); }
  const TensorType& type(Value value) const { return graph_.type(value); }
  // The node that computes a value as its first output if it is of op `op` (empty: any op), else null.
  const Node* producer(Value value, std::string_view op = {}) const;
  // The number in a constant of one element (or of equal elements).
  bool constant(Value value, double* out) const;
  // How often nodes, outputs and updates of the graph use the value.
  int uses(Value value) const { return uses_[value.index]; }
  bool used_once(Value value) const { return uses(value) == 1; }

 private:
  const Graph& graph_;
  const std::vector<int>& uses_;
  NodeId root_;
};

struct RewriteRow {
  std::string name;
  std::string doc;
  std::string root_op;             // the op of the pattern's last node
  std::vector<std::string> after;  // rows that run before this one, which may build on what they leave
  // Looks whether the pattern ends here. On a match, emits the replacement with `builder` (operands through `now`) and
  // returns what the root's outputs are now, Var() for those that nothing uses; else returns an empty list. Nodes that
  // the builder makes carry the root's name; a row gives its helpers another scope.
  std::vector<Var> (*apply)(const Match& match, Builder& builder, const GraphRewriter& now) = nullptr;
};
using RewriteTable = TableOf<RewriteRow>;
const RewriteTable& rewrite_table();  // generated
// As they run: each after those that it names, else as in the table.
const std::vector<const RewriteRow*>& rewrites_in_order();

struct RewriteCount {
  std::string row;
  int count = 0;
};
// Applies every row, in order, until nothing changes; dead nodes go. Counts say how often each row matched.
Result<Graph> rewrite_graph(const Graph& graph, std::vector<RewriteCount>* counts = nullptr);

#define EPL_REWRITE(row_name) EPL_ROW(EPL_REWRITE, row_name, ::epl::RewriteTable, ::epl::RewriteRow)

}  // namespace epl
