#include "core/program/transfer.h"

namespace epl {

EPL_OP(all_gather) {
  return collective_op(
      "Of each operand the x of all `parts` ranks of mesh axis `axis`, one behind the other along dimension 0.",
      Segments::gathered);
}

EPL_TRANSFER(all_gather) {
  return collective_transfer(Collective::Kind::all_gather,
                             "the values of the ranks of a group, in their order, to each of them");
}

}  // namespace epl
