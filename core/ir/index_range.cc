#include "core/ir/index_range.h"

#include <algorithm>

namespace epl {

const IndexRow* index_row(const OpDef& op) { return index_table().find(op.name); }

bool only_moves(const OpDef& op) { return op.view || op.moves == Moves::all || op.moves == Moves::converted; }

}  // namespace epl
