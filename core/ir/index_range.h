// What the integers of an operand may be, for ops that gather or scatter by them: a row beside the op's record, in its
// file.
//
//   EPL_INDICES(gather) { return {.input = 1, .low = -rows, .high = rows, .what = "index into 7 rows"}; }   // of the
//   query q
//
// A session looks at its inputs with this before it computes anything (core/compile/input_bounds.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/ir/op.h"

namespace epl {

// Integers in [low, high), or `ignored`. Others are an error of the caller.
struct IndexRange {
  int input = 0;
  int64_t low = 0, high = 0;
  std::optional<int64_t> ignored;
  std::string what;      // the integers are: "class of 10", "index into 256 rows"
  std::string exceeded;  // in place of `what`: what is wrong with one that is above
};

struct IndexRow {
  std::string name;  // of the op
  IndexRange (*range)(const OpQuery& q) = nullptr;
};
using IndexTable = TableOf<IndexRow>;
const IndexTable& index_table();  // generated
// The row of an op; null if no operand has indices.
const IndexRow* index_row(const OpDef& op);

// Output 0 holds the elements of input 0, all of them and no others, in any order; integers that are cast keep their
// values.
bool only_moves(const OpDef& op);

#define EPL_INDICES(op_name)                                                                        \
  EPL_ROW_AS(EPL_INDICES, op_name, ::epl::IndexTable, ::epl::IndexRange, (const ::epl::OpQuery& q), \
             table.add(#op_name, {.name = "", .range = EPL_INDICES_make_##op_name}))

}  // namespace epl
