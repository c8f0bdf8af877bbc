// What the integers of an operand may be, for ops that pick by them: a row beside the op's record, in its file.
//
//   EPL_INDICES(gather) { return {.input = 1, .low = -rows, .high = rows, .what = "index into 7 rows"}; }   // of the
//   query q
//
// A session looks at its inputs with this before it computes anything (core/runtime/input_bounds.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/ir/op.h"

namespace epl {

// Integers in [low, high), or `ignored`. Others are a mistake of who gave them.
struct IndexRange {
  int input = 0;
  int64_t low = 0, high = 0;
  std::optional<int64_t> ignored;
  std::string what;  // the integers are: "class of 10", "index into 256 rows"
};

struct IndexRow {
  std::string op;
  IndexRange (*range)(const OpQuery& q) = nullptr;
};
struct IndexTable {
  std::vector<IndexRow> rows;
};
void fill_index_table(IndexTable& table);  // generated
// The row of an op; null for one that picks by no operand.
const IndexRow* index_row(const OpDef& op);

// Output 0 holds the elements of input 0, all of them and no others, in any order; integers that are cast keep their
// values.
bool only_moves(const OpDef& op);

#define EPL_INDICES(op_name)                                               \
  static ::epl::IndexRange epl_indices_##op_name(const ::epl::OpQuery& q); \
  void EPL_INDICES_row_##op_name(::epl::IndexTable& table);                \
  void EPL_INDICES_row_##op_name(::epl::IndexTable& table) {               \
    table.rows.push_back({#op_name, epl_indices_##op_name});               \
  }                                                                        \
  static ::epl::IndexRange epl_indices_##op_name(const ::epl::OpQuery& q)

}  // namespace epl
