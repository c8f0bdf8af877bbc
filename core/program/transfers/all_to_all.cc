#include "core/program/transfer.h"

namespace epl {

EPL_OP(all_to_all) {
  return collective_op(
      "Of each of the `parts` ranks of mesh axis `axis` the segment of its x, along dimension 0, that belongs to the "
      "current rank, in the order of the ranks.",
      Segments::exchanged);
}

EPL_TRANSFER(all_to_all) {
  return collective_transfer(Collective::Kind::all_to_all, "from every rank of a group to every other a segment");
}

}  // namespace epl
