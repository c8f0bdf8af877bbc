// How an op is cut along a dimension that its kernels need whole: a row beside the op's record, in its file.
//
// Most ops compute a piece of their result as they compute all of it, on smaller shapes; their sharding rule says along
// which dimensions. A softmax along a cut dimension needs the maximum and the sum of all pieces. A gather from rows
// that ranks share out needs to know which rows are here. Such a row says what the pieces are then:
//
//   EPL_PIECES(softmax) { return {.ties = ...}; }                 its body is cut, node by node
//   EPL_PIECES(gather) { return {.ties = ..., .indices = 1}; }    operand 1 picks along the dimension
//   EPL_PIECES(dropout) { return {.ties = ..., .counts = 1}; }    operand 1 is the number of a rank's first element
//   EPL_PIECES(conv) { return {.ties = ..., .sums = true}; }      pieces add up, in another order than that of one rank
//
// The batch is never cut in this way.
#pragma once

#include <string>

#include "core/ir/op.h"

namespace epl {

// Ties dimensions that the op's rule calls unshardable to new factors, behind those that the rule has.
class Ties {
 public:
  Ties(ShardingRule& rule, const OpQuery& query) : rule_(rule), q(query) {}
  // Unshardable for all who know the op's rule alone.
  int factor(int64_t size) { return rule_.add_factor(size, true); }
  // Nothing to do for absent operands and dimensions of size one.
  void input(int i, int dim, int factor);
  void output(int i, int dim, int factor);
  // Operand i is added to what is summed over the factor, where it is there.
  void added(int i, int factor);

 private:
  ShardingRule& rule_;

 public:
  const OpQuery& q;
};

struct PieceRule {
  std::string name = {};  // of the op
  void (*ties)(Ties&) = nullptr;
  // The op in other ops, which the same rules cut; absent: OpDef::body. Its results are complete. Not used where
  // `indices` is given.
  void (*body)(Body&) = nullptr;
  // The operand whose integers pick elements along the tied dimension, each rank those that it has; -1: none does. A
  // result that lacks the dimension is zero where a rank has nothing, and so a sum over the ranks.
  int indices = -1;
  // The operand that tells a rank the number of its first element, of which there is none where nothing is cut; -1:
  // none does. The attributes `run` and `stride` say how it counts on: as many elements follow one another, and the
  // next such run begins so many behind.
  int counts = -1;
  // What a rank computes of its piece is its part of a sum over the ranks.
  bool sums = false;

  bool by_body() const { return indices < 0 && counts < 0 && !sums; }
};
using PieceTable = TableOf<PieceRule>;
const PieceTable& piece_table();  // generated

// A rule with the factors that the op's row adds, from `added` on.
struct ExtendedRule {
  ShardingRule rule;
  size_t added = 0;
  const PieceRule* row = nullptr;  // null: there is none, and nothing is added
};
Result<ExtendedRule> extended_rule(const OpQuery& query);

#define EPL_PIECES(op_name) EPL_ROW(EPL_PIECES, op_name, ::epl::PieceTable, ::epl::PieceRule)

}  // namespace epl
