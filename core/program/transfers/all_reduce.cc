#include "core/program/transfer.h"

namespace epl {

EPL_OP(all_reduce) {
  return collective_op("The sum of x over the ranks of mesh axis `axis`, by the binary tree over ranks.",
                       Segments::none);
}

EPL_TRANSFER(all_reduce) {
  return collective_transfer(Collective::Kind::all_reduce, "the sum over the ranks of a group, to each of them");
}

}  // namespace epl
