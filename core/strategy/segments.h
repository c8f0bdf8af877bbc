// Sums that have the same bits however a split cuts what they sum over (`reproducible.level` = `layout`).
//
// The pass `segments` gives such a node segments, the same in every layout. Alone it sums them one by one and adds them
// as a binary tree. A rank that has some of them gives a subtree, and the sum over ranks completes the tree. An uneven
// shard need not end where a segment ends, so at this level shards are equal. No split may cut another sum.
#pragma once

#include "core/strategy/batch_cut.h"
#include "core/strategy/plan.h"

namespace epl {

bool sums_by_segments(const Plan& plan);
// Whether ranks that have `shards` shards of the factor give the bits of one: nothing is summed over it, or each shard
// is full segments.
bool keeps_segments(const ShardingRule& rule, const SumSegments& segments, const CutFactor& factor, int64_t shards);
// How many segments a rank sums, 1 where the node has none.
int64_t local_segments(const Mesh& mesh, const NodeSharding& node);
// That they are those of the node's rule.
Status check_segments(const Node& node, const ShardingRule& rule, const SumSegments& segments);
// That every sum over ranks of a split is one of segments. Names the node where it is not.
Status verify_segments(const Plan& plan);

}  // namespace epl
