#include "core/program/transfer.h"

namespace epl {

EPL_OP(all_reduce) {
  OpDef op = collective_op(
      "The sum of each x over the ranks of mesh axis `axis`, by the binary tree over ranks, or the `reduction` max or "
      "min.",
      Segments::none);
  op.adds = true;
  op.attributes.push_back({"reduction", "sum", false, "", {"sum", "max", "min"}});
  return op;
}

EPL_TRANSFER(all_reduce) {
  return collective_transfer(Collective::Kind::all_reduce,
                             "the sum, or another reduction, over the ranks of a group, to each of them");
}

}  // namespace epl
