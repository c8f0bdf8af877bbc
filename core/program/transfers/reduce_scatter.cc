#include "core/program/transfer.h"

namespace epl {

EPL_OP(reduce_scatter) {
  OpDef op = collective_op(
      "Of the sum of each x over the `parts` ranks of mesh axis `axis`, by the binary tree over ranks, the segment "
      "along dimension 0 that belongs to the current rank.",
      Segments::scattered);
  op.adds = true;
  return op;
}

EPL_TRANSFER(reduce_scatter) {
  return collective_transfer(Collective::Kind::reduce_scatter, "a segment of the sum over the ranks of a group");
}

}  // namespace epl
