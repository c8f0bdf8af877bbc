// A node that is cut along a dimension that its kernels need in full (core/ir/partition_rule.h), for `partition`.
#pragma once

#include <string>
#include <vector>

#include "core/ir/builder.h"
#include "core/strategy/batch_cut.h"
#include "core/strategy/plan.h"

namespace epl {

// The factor that the op's PartitionRule adds and that is cut.
struct ShardCut {
  ExtendedRule rule;
  int factor = -1;        // none is
  std::vector<int> axes;  // that cut it
  int64_t of = 0;         // AxisCut::of
  bool by_body() const { return factor >= 0 && rule.row->by_body(); }
  bool has_indices() const { return factor >= 0 && rule.row->indices >= 0; }
  bool counts() const { return factor >= 0 && rule.row->counts >= 0; }
  bool slides() const { return factor >= 0 && rule.window(factor) >= 0; }
  int64_t size() const { return rule.rule.factors[factor].size; }
  bool lacks(size_t output) const;
  // Whether dimension 0 of an operand or result is that of one-dimensional indices.
  bool is_rows(const ShardingRule::Operand& dims) const;
  // The shape that indices of a shape get to stand beside a result that was gathered by them.
  Shape beside(size_t output, const Shape& indices) const;
  // That of an operand of this shape beside result 0, to which it is added; empty where broadcasting does it.
  Shape beside_result(int operand, const Shape& operand_shape) const;
};

// Indices into a dimension of `size`, as a rank with the `rows` elements from `first` on has them: those into other
// shards are out of the range of its own, and so are those that are in no shard. `padded`: behind the last element
// there may be padding, which no index finds.
struct OwnIndices {
  Var indices, elsewhere;  // elsewhere: true where another rank has the element
};
OwnIndices own_indices(Builder& b, const Var& indices, const Var& first, int64_t rows, int64_t size, bool padded);
ShardCut shard_cut(const Plan& plan, NodeId node);

// The body of a node: its nodes follow the cuts of their operands.
struct ShardBody {
  Plan plan;
  std::vector<Value> operands, results;  // by operand and result of the node, none where it is absent
};
Result<ShardBody> shard_body(const Plan& plan, NodeId node, const ShardCut& cut, const OperandShardings& operands);

}  // namespace epl
