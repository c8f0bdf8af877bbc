// The scalar expression of a region of nodes, joined from theirs.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "core/ir/graph.h"
#include "core/ir/scalar.h"
#include "core/program/program.h"

namespace epl {

// What an elementwise node computes of each element.
ScalarExpr expression_of(const Graph& graph, const Node& node);

class RegionWriter {
 public:
  // `members`: node indices, ascending. `shape`: of every result.
  RegionWriter(const Graph& graph, std::span<const int> members, const Shape& shape)
      : graph_(graph), members_(members), shape_(shape), at_(graph.value_count(), -1) {}

  void add(const Node& node);
  void give(Value value) { expression_.outputs.push_back(at_[value]); }
  const std::vector<Value>& inputs() const { return inputs_; }
  // The node of each instruction of the expression.
  const std::vector<DoneNode>& nodes() const { return nodes_; }

  // The expression; its inputs are inputs(), which broadcast to the region's shape.
  ScalarExpr finish();

 private:
  int operand(Value value);

  bool is_member(NodeId node) const { return std::ranges::binary_search(members_, node.index); }

  // A result of the region as the separate node would have stored it.
  int rounded(int at, DType type);

  int outside(Value value);

  int input(Value value);

  // An operand that the expression does not read may still be needed for the region to have its shape.
  void restore_shape();

  bool reaches_shape() const;

  const Graph& graph_;
  std::span<const int> members_;
  const Shape& shape_;
  ScalarExpr expression_;
  std::vector<Value> inputs_, numbers_, broadcast_;
  ByValue<int> at_;              // instruction of a value, -1 for none yet
  std::vector<DoneNode> nodes_;  // by instruction
  DoneNode node_;                // the current one
};

}  // namespace epl
