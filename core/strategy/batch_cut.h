// How one node follows a cut of the batch, which the propagate pass decides.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/ir/graph.h"
#include "core/ir/op.h"
#include "core/ir/partition_rule.h"
#include "core/strategy/sharding.h"

namespace epl {

// Where the batch lies in an operand: in dimension `dim`, which is `outer` times a run of samples (each may be several
// elements). Samples are the major part of the dimension where outer is 1: [time * samples, ...] has an outer of
// `time`.
struct CutPosition {
  int dim = -1;  // -1: nowhere
  int64_t outer = 1;
  int64_t of = 0;  // AxisCut::of; that of the batch is even
  explicit operator bool() const { return dim >= 0; }
  friend bool operator==(const CutPosition&, const CutPosition&) = default;
};

// A factor of a rule that is `outer` times a run of samples.
struct CutFactor {
  int factor = -1;
  int64_t outer = 1;
  int64_t of = 0;
  explicit operator bool() const { return factor >= 0; }
  friend bool operator==(const CutFactor&, const CutFactor&) = default;
};

struct BatchCut {
  CutFactor factor;      // the node's factor that carries the batch; none: the node sees all of it, or none
  bool couples = false;  // it works across samples in a way that a cut cannot follow; `why` says how
  std::string why;
  std::vector<CutPosition> inputs;   // per input: where the factor stands, nowhere if it does not
  std::vector<CutPosition> outputs;  // nowhere: the output is a sum over the batch
  int64_t sum_outer = 1;             // Units::outer of those sums
};

Result<ShardingRule> node_rule(const Graph& graph, const Node& node);
// With the factors that the op's PartitionRule adds. A NodeSharding that cuts one of them has a cut for each factor of
// this rule; others have one for each of the op's own rule.
Result<ExtendedRule> node_extended_rule(const Graph& graph, const Node& node);
OperandShardings operand_shardings(const ExtendedRule& rule, const NodeSharding& node);

// The rules of all nodes of a graph, each resolved once.
struct NodeRules {
  ByNode<ShardingRule> own;  // of the op
  ByNode<ExtendedRule> extended;
};
Result<std::shared_ptr<const NodeRules>> node_rules(const Graph& graph);

// What shards read of operands along a factor along which a window slides; none where they cannot be computed alike.
std::optional<Halo> node_halo(const Graph& graph, const Node& node, const ExtendedRule& rule, int factor,
                              int64_t shards);
// The added factor that is cut, -1 for none.
int added_cut(const ExtendedRule& rule, const NodeSharding& node);
// Whether a result is a sum over the batch that a cut of this factor leaves in shards too.
bool sums_batch_without(const ShardingRule& rule, const NodeSharding& node, int factor);
// Where an axis cuts a value.
CutPosition position_of(const Sharding& sharding, int axis);
// The factor that a cut at `position` of an operand cuts; none where no single one does.
CutFactor factor_at(const ShardingRule& rule, const ShardingRule::Operand& operand, const CutPosition& position);
// `cut[i]`: where input i carries the batch. `wanted`: a factor to use when no input is cut.
BatchCut follow_batch(const ShardingRule& rule, const std::vector<CutPosition>& cut, int64_t units,
                      CutFactor wanted = {});

}  // namespace epl
