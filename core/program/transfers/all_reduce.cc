#include "core/ir/op.h"
#include "core/program/transfer.h"

namespace epl {

EPL_OP(all_reduce) {
  return {.doc = "The sum of x over the ranks of mesh axis `axis`, by the binary tree over ranks.",
          .signature = "x -> y",
          .attributes = {{"axis", std::string("data"), true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> { return OutputTypes{q.in(0)}; },
          .no_gradient = "it is placed after the gradients are known",
          .seam = true};
}

EPL_TRANSFER(all_reduce) {
  return collective_transfer(Collective::Kind::all_reduce, "the sum over the ranks of a group, to each of them");
}

}  // namespace epl
