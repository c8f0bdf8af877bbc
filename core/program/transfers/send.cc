#include "core/ir/op.h"
#include "core/program/transfer.h"

namespace epl {

EPL_OP(send) {
  return {.doc =
              "Gives x to a rank of virtual device `to`, which receives it over the same channel: of those that this "
              "rank serves "
              "that of number `peer`, if there are as many.",
          .signature = "x ->",
          .attributes = {{"to", int64_t{0}, true}, {"peer", int64_t{0}}, {"channel", int64_t{0}}},
          .infer = [](const OpQuery&) -> Result<OutputTypes> { return OutputTypes{}; },
          .no_gradient = "it is inserted after the gradients are known",
          .boundary = true};
}

EPL_TRANSFER(send) {
  return {.doc = "a value to another rank; it may be waited for later",
          .op = "send",
          .counterpart = "to",
          .sends = true,
          .call = Collective::Kind::send,
          .run = [](const TransferCall& call) -> Status {
            if (!call.group) return {};
            const TensorType& type = call.in.query->in(0);
            return call.group->run(call.stream, {.kind = Collective::Kind::send,
                                                 .dtype = type.dtype,
                                                 .count = type.elements(),
                                                 .source = call.source,
                                                 .peer = 1 - call.group->rank()});
          }};
}

}  // namespace epl
