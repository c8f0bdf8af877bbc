// How an op is cut along a dimension that its kernels need in full: a row beside the op's record, in its file.
//
// Most ops compute a shard of their result as they compute all of it, on smaller shapes; their sharding rule says along
// which dimensions. A softmax along a cut dimension needs the maximum and the sum of all shards. A gather from rows
// that ranks share out needs to know which rows are here. Such a row says what the shards are then:
//
//   EPL_PARTITION(softmax) { return {.ties = ...}; }                 its body is cut, node by node
//   EPL_PARTITION(gather) { return {.ties = ..., .indices = 1}; }    operand 1 has indices along the dimension
//   EPL_PARTITION(dropout) { return {.ties = ..., .counts = 1}; }    operand 1 is the number of a rank's first element
//   EPL_PARTITION(conv) { return {.ties = ..., .sums = true}; }      shards add up, in another order than on one rank
//   EPL_PARTITION(max_pool) { return {.ties = ..., .halo = ...}; }   shards read over their borders
//
// The batch is never cut in this way, so the bits of data parallelism do not depend on these rows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/ir/op.h"

namespace epl {

// Ties dimensions that the op's rule calls unshardable to new factors, behind those that the rule has.
class Ties {
 public:
  Ties(ShardingRule& rule, const OpQuery& query) : rule_(rule), first_(rule.factors.size()), q(query) {}
  // Unshardable for all who know the op's rule alone.
  int factor(int64_t size) { return rule_.add_factor(size, true); }
  // Nothing to do for absent operands and dimensions of size one.
  void input(int i, int dim, int factor);
  void output(int i, int dim, int factor);
  // Operand i is added to what is summed over the factor, where it is there.
  void added(int i, int factor);
  // A dimension along which a window slides: what each operand and result has of it divides alike, so that a factor of
  // the common divisor of these sizes stands for all. -1: nothing divides them. For PartitionRule::halo.
  int window(int dim, int64_t size, int64_t other);
  // By added factor, the dimension of the window, -1: it is of none.
  std::vector<int> windows() const;

 private:
  ShardingRule& rule_;
  const size_t first_;  // of the factors that are added
  std::vector<std::pair<int, int>> windows_;

 public:
  const OpQuery& q;
};

// What equal shards of a dimension read of an operand along it: the p-th reads `size` elements from `first + p * step`
// on, over the borders of the operand's own shard. Outside of the operand is padding. `size` may be less than a shard.
struct Halo {
  int64_t first = 0, step = 0, size = 0;
  int64_t begin = 0, end = 0;  // the padding with which the op runs on what it has read
  bool borders(int64_t own) const { return first != 0 || step != own || size != own; }
};
struct HaloRule {
  // None: shards cannot be computed alike. `dim` is that of the operands, `shards` divides the factor.
  std::optional<Halo> (*of)(const OpQuery&, int dim, int64_t shards) = nullptr;
  std::vector<int> operands = {};        // that are read so
  bool lowest = false;                   // padding is the lowest number, else zero
  void (*adapt)(Attributes&) = nullptr;  // what else changes, where one is cut
  // Whose integers are row-major positions within the dimensions from 2 on, along which windows slide: an operand's
  // within those of result 0, a result's within those of operand 0. -1: nobody's.
  int numbers_operand = -1, numbers_result = -1;
};

struct PartitionRule {
  std::string name = {};  // of the op
  void (*ties)(Ties&) = nullptr;
  // The op in other ops, which the same rules cut; absent: OpDef::body. Its results are complete. Not used where
  // `indices` is given.
  void (*body)(Body&) = nullptr;
  // The operand whose integers index the tied dimension, each rank the elements that it has; -1: none does. A
  // result that lacks the dimension is zero where a rank has nothing, and so a sum over the ranks.
  int indices = -1;
  // The attribute that tells such an op over how many ranks its indices are spread: each does its share of the work, on
  // average. Empty: the work does not depend on it.
  std::string_view shared = {};
  // The operand that tells a rank the number of its first element, of which there is none where nothing is cut; -1:
  // none does. The attributes `run` and `stride` say how it counts on: as many elements follow one another, and the
  // next such run begins so many behind.
  int counts = -1;
  // What a rank computes of its shard is its part of a sum over the ranks.
  bool sums = false;
  // A window slides along dimensions (Ties::window): a shard reads more of an operand than the shard that is there.
  HaloRule halo = {};

  bool by_body() const { return indices < 0 && counts < 0 && !sums && !halo.of; }
};
using PartitionRuleTable = TableOf<PartitionRule>;
const PartitionRuleTable& partition_rule_table();  // generated

// A rule with the factors that the op's row adds, from `added` on.
struct ExtendedRule {
  ShardingRule rule;
  size_t added = 0;
  const PartitionRule* row = nullptr;  // null: there is none, and nothing is added
  std::vector<int> windows = {};       // by added factor: the dimension along which a window slides, -1 for none
  int window(int factor) const {
    const auto f = static_cast<size_t>(factor);
    return factor < 0 || f < added ? -1 : windows[f - added];
  }
  bool slides() const { return row && row->halo.of; }
  // Whether an operand or result has one of the added factors.
  bool adds_to(const ShardingRule::Operand& dims) const;
  // Whether indices say where in the result rows come that stand beside them.
  bool scatters_rows() const { return row && row->indices > 0 && adds_to(rule.outputs[0]); }
};
Result<ExtendedRule> extended_rule(const OpQuery& query);

#define EPL_PARTITION(op_name) EPL_ROW(EPL_PARTITION, op_name, ::epl::PartitionRuleTable, ::epl::PartitionRule)

}  // namespace epl
