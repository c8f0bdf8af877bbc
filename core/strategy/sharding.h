// How values lie over ranks: meshes, how a value is cut over a mesh, and how the work of a node is cut.
//
// Ranks that share a program are a virtual device, which has a mesh over its ranks. All meshes of a plan have axes of
// the same names. An axis that a mesh has no use for has size 1 there. The coordinates of a rank in its mesh decide
// which shard of a tensor the rank has, who its peers are, and which random numbers it draws.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/ir/sharding_rule.h"

namespace epl {

constexpr bool power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

struct MeshAxis {
  enum class Kind : uint8_t { rank, time, unit };
  std::string name;
  int64_t size = 1;
  Kind kind = Kind::rank;
};

// The axes that every mesh has, over which the batch is cut: over ranks, over time, inside a kernel. BatchLayout has
// their order.
inline constexpr std::string_view data_axis = "data", micro_batch_axis = "micro_batch", unit_axis = "unit";
// That of data is the first of every mesh. It stands for all of the batch where a cut is looked up: they cut together.
inline constexpr int batch_axis = 0;

// Ranks of the job that run one program.
struct VirtualDevice {
  std::vector<int> ranks;
};

// Where one rank stands in a mesh at one time: a coordinate for each axis. That of units is 0: a kernel has them all.
struct MeshCoordinates {
  std::vector<int64_t> at;
  friend bool operator==(const MeshCoordinates&, const MeshCoordinates&) = default;
};

// A cut of a dimension or factor over axes, major first. What is cut is `outer` times a run: more than 1 where what the
// axes cut is not its major part. In a dimension [batch * heads], the batch is cut with an outer of 1 and the heads
// with an outer of `batch`.
//
// Where shards do not come out even, a run consists of `of` equal granules that stay together, and each shard has room
// for ceil(of / shards) of them. The last shards may have fewer, or none: what no granule fills is padding
// (core/program/padding.h). So all ranks have shards of one size and run one program. 10 heads of 64 over 4 ranks, in a
// dimension of 640, are a cut with an `of` of 10: 3, 3, 3 and 1 heads, in shards of 192.
struct AxisCut {
  std::vector<int> axes;
  int64_t outer = 1;
  int64_t of = 0;  // 0: the shards are equal
  friend bool operator==(const AxisCut&, const AxisCut&) = default;
};
// Of one dimension or factor, by ascending `outer`; none: it is not cut. Sizes are global: an `outer` counts what other
// cuts of the dimension divide.
using Cuts = std::vector<AxisCut>;
const AxisCut* find_cut(const Cuts& cuts, int axis);  // the one that has the axis, or null

// Named axes over a VirtualDevice, whose ranks are in row-major order of the rank axes. Plans and programs compute with
// coordinates, and not with rank numbers. A session asks the mesh which ranks have a shard; where micro-batches cut a
// value too, core/runtime/sharing.cc takes the axes of time out of the cuts by itself.
//
// What an axis cuts is each TaskGraph's own (BatchLayout, TaskGraph::split).
struct Mesh {
  std::vector<MeshAxis> axes;
  VirtualDevice device;
  int find(std::string_view name) const;      // -1 if there is none
  int64_t size(std::string_view name) const;  // 1 if there is none
  int64_t ranks() const;                      // product of the rank axes
  // How many shards, each with memory of its own, these axes make: units are not among them, which a kernel has side by
  // side.
  int64_t shards(const std::vector<int>& axes) const;
  int64_t shards(const Cuts& cuts) const;
  // Granules in a shard of an uneven cut, with its padding.
  int64_t granules_of_shard(const AxisCut& cut) const { return (cut.of + shards(cut.axes) - 1) / shards(cut.axes); }
  // The elements that a rank has of a dimension of this size, with their padding.
  int64_t local_size(int64_t size, const Cuts& cuts) const;
  // Of the runs that a dimension has in front of a cut with this outer, how many a rank has.
  int64_t local_outer(int64_t outer, const Cuts& cuts) const;
  // Which of these shards belongs to these coordinates.
  int64_t shard(const MeshCoordinates& coordinates, const std::vector<int>& axes) const;
  // The coordinates of a rank of the device.
  MeshCoordinates coordinates(int rank, int64_t micro_batch = 0) const;
  int rank_at(const MeshCoordinates& coordinates) const;
  // The ranks whose coordinates differ from those of `rank` on `axis` alone, ascending on it, itself
  // among them.
  std::vector<int> ranks_along(std::string_view axis, int rank) const;
};

// Whom a rank at `coordinates` sends a value to that the ranks of another mesh need, and whom it comes from: meshes
// have axes of the same names. Where an axis has the same size in both, a value stays at its coordinate; else all ranks
// along it have the same value, and the sending ones take turns.
std::vector<int> crossing_targets(const Mesh& from, const MeshCoordinates& coordinates, const Mesh& to);
int crossing_source(const Mesh& from, const MeshCoordinates& coordinates);
// The most targets that a rank has.
int64_t max_crossing_targets(const Mesh& from, const Mesh& to);

// A reduction that is still pending.
struct Partial {
  int axis = 0;
  ShardingRule::Reduce kind = ShardingRule::Reduce::sum;
  friend bool operator==(const Partial&, const Partial&) = default;
};

// What the ranks of one shard of these axes have, or run, alone. In its place the others have another value of the same
// type, or run another node that is like it: Plan::value_representative, Plan::node_representative. So each has experts
// of its own, though all run one program.
struct RankLocal {
  std::vector<int> axes;  // none: every rank has it
  int64_t shard = 0;      // of those that the axes make
  explicit operator bool() const { return !axes.empty(); }
  bool is_at(const Mesh& mesh, const MeshCoordinates& coordinates) const {
    return axes.empty() || mesh.shard(coordinates, axes) == shard;
  }
  friend bool operator==(const RankLocal&, const RankLocal&) = default;
};

// Of a value, in the mesh of its virtual device.
struct Sharding {
  std::vector<Cuts> dims;
  // In the order in which they are completed, but for those over the batch, which has an order of its own
  // (BatchLayout).
  std::vector<Partial> partial;
  RankLocal rank_local = {};
  int cut_dim(int axis) const;    // the dimension that this axis cuts, -1 for none
  int64_t outer(int axis) const;  // of that cut, 1 for none
  int64_t of(int axis) const;     // the same, 0 for none
  bool uneven() const;            // a shard may have padding
  friend bool operator==(const Sharding&, const Sharding&) = default;
};

// A factor over which a node sums `count` aligned runs one by one and then adds them as a binary tree, in every layout:
// a run of each of `outer` equal ranges is a segment, as a unit is one of the batch. What ranks have of the factor is a
// full number of segments.
struct SumSegments {
  int factor = -1;  // none: the node sums in one run
  int64_t outer = 1, count = 1;
  explicit operator bool() const { return factor >= 0; }
  friend bool operator==(const SumSegments&, const SumSegments&) = default;
};

// Of a node: per factor of its op's rule. What its operands must look like, and what its results are, follows from
// both.
struct NodeSharding {
  std::vector<Cuts> factors;  // none: nothing is cut
  SumSegments segments;       // at level `layout`, of a sum that splits may cut
  // Axes over which all its operands are sums that are pending, and so is its result: a node that only adds and moves.
  std::vector<int> flowing = {};
  RankLocal rank_local = {};
  bool cut() const;
  bool cut_by(int axis) const;
  bool uneven() const;
  friend bool operator==(const NodeSharding&, const NodeSharding&) = default;
};
struct OperandShardings {
  std::vector<Sharding> inputs, outputs;  // an output over which a cut factor is reduced is partial
  std::vector<int64_t> sum_outers;        // per output: Units::outer where it is a sum, else 1
  int64_t segment_outer = 1;              // Units::outer of the sum over segments
  int added_later = -1;                   // the operand that joins output 0 when its sum over ranks is complete
};
// The node has a cut for each factor of the rule, many of them none.
OperandShardings operand_shardings(const ShardingRule& rule, const NodeSharding& node);
// Whether a dimension of an operand is made of a factor, alone or with others.
bool stands_in(const ShardingRule::Operand& operand, int factor);

}  // namespace epl
