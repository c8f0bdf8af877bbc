#include "core/ir/index_range.h"

#include <algorithm>

namespace epl {

const IndexRow* index_row(const OpDef& op) {
  static const IndexTable table = [] {
    IndexTable made;
    fill_index_table(made);
    return made;
  }();
  const auto found = std::ranges::find(table.rows, op.name, &IndexRow::op);
  return found == table.rows.end() ? nullptr : &*found;
}

bool only_moves(const OpDef& op) { return op.view || op.name == "transpose" || op.name == "cast"; }

}  // namespace epl
