#include "core/ir/op.h"
#include "core/program/transfer.h"

namespace epl {

EPL_OP(upload) {
  return {.doc = "x, a tensor of the caller's, in the memory of a device that cannot read the host's.",
          .signature = "x -> y",
          .infer = [](const OpQuery& q) -> Result<OutputTypes> { return OutputTypes{q.in(0)}; },
          .no_gradient = "it is inserted after the gradients are known",
          .boundary = true};
}

EPL_TRANSFER(upload) {
  return {.doc = "a caller's tensor, or its shard of the batch, to a device that cannot read it where it is",
          .op = "upload",
          .holds = "input",
          .from_caller = true,
          .run = [](const TransferCall& call) -> Status {
            call.take(call.target, call.source, call.in.bytes);
            return {};
          }};
}

}  // namespace epl
