// What a node that works on a shard is given, and what becomes of what it gives: the borders of its windows, the
// numbers of its elements, the rows that are here. Nodes are written around it; it may get other operands and
// attributes.
#pragma once

#include "core/program/local_writer.h"
#include "core/program/shard_body.h"

namespace epl {

// Where all ranks draw alike, and each micro-batch anew: the number of the first element that this one draws.
Status count_over_time(const LocalWriter& w, const Graph& global, Node& node);
// Elements are numbered over all shards: the node gets the number of its first one, and learns how they go on.
Status count_on(const LocalWriter& w, const Plan& plan, Node& node, const ShardCut& cut,
                const OperandShardings& operands);

// Windows slide along a cut dimension: operands get the borders that they read of other shards, and the node the
// attributes that go with them.
Status reach_over(const LocalWriter& w, const Graph& global, NodeId n, Node& node, const ShardCut& cut);
// Positions that windows have found along the cut dimension, within all of operand 0 instead of what a shard reads.
Result<Value> numbered(const LocalWriter& w, const Graph& global, Value positions, NodeId n, const ShardCut& cut);

// Indices into a dimension that ranks share out become indices into the shard that is here; those into other shards are
// out of its range. Returns which these are.
Result<Value> own_rows(const LocalWriter& w, Value& indices, const ShardCut& cut, const Node& old);
// What a rank adds to a sum of gathered elements: nothing where another rank has them. That is -0: any other number of
// a sum keeps its bits, -0 too. `o`: which result of the node it is.
Value zero_elsewhere(const LocalWriter& w, Value given, Value elsewhere, const ShardCut& cut, size_t o,
                     const Node& old);

}  // namespace epl
