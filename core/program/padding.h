// The padding of uneven shards (AxisCut::of): where it is, and where a node may not read it.
//
// It is zero in state and where a full value has just been cut. What nodes make of it is anything, a NaN too: an
// element of a result comes of those elements of the operands that have its indices, so nothing of it gets out. Nodes
// that reduce over a cut factor are the exception. In front of them it gets a value that changes nothing
// (`padding_before`); and so it does behind an update, in front of what is kept of it until the next step.
#pragma once

#include <optional>
#include <vector>

#include "core/base/tensor.h"
#include "core/ir/graph.h"
#include "core/ir/partition_rule.h"
#include "core/strategy/sharding.h"

namespace epl {

// The cuts of a dimension, in the same dimension with its padding: there all shards are equal.
class Padding {
 public:
  Padding(const Mesh& mesh, const Cuts& cuts) : mesh_(mesh), cuts_(cuts) {}
  int64_t outer(const AxisCut& cut) const;
  // Into which an uneven cut divides its run.
  int64_t granules(const AxisCut& cut) const { return mesh_.granules_of_shard(cut) * mesh_.shards(cut.axes); }

 private:
  const Mesh& mesh_;
  const Cuts& cuts_;
};

// An operand of which a node would read padding, and what it must find there.
struct ReadPadding {
  size_t operand = 0;
  size_t dim = 0;
  AxisCut cut;
  ShardingRule::Reduce kind = ShardingRule::Reduce::sum;
  // Of targets: that of the node's attribute `ignore_index`, where it has one. Any other would count.
  std::optional<int64_t> ignored = {};
  friend bool operator==(const ReadPadding&, const ReadPadding&) = default;
};
// `operands` are how they lie for the node, which has this sharding.
std::vector<ReadPadding> padding_before(const Graph& graph, const Node& node, const ExtendedRule& rule,
                                        const NodeSharding& sharding, const std::vector<Sharding>& operands);
// All padding of a value.
std::vector<ReadPadding> padding_of(const Sharding& sharding);

// A local value whose dimension d is cut, as [before, granules of its shard, behind].
Shape in_granules(const Mesh& mesh, const Shape& local, const Sharding& sharding, size_t dim, const AxisCut& cut);
// What changes nothing there, of this type.
Tensor neutral(const ReadPadding& read, DType dtype);

}  // namespace epl
