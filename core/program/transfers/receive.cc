#include "core/ir/op.h"
#include "core/program/transfer.h"

namespace epl {

EPL_OP(receive) {
  return {.doc = "What the rank of virtual device `from` that serves this one sends over a channel.",
          .signature = "-> y",
          .attributes = {{"from", int64_t{0}, true},
                         {"dtype", DType::f32, true},
                         {"shape", Ints{}, true},
                         {"channel", int64_t{0}}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            return OutputTypes{{q.attributes().dtype("dtype"), q.attributes().ints("shape")}};
          },
          .no_gradient = "it is inserted after the gradients are known",
          .boundary = true};
}

EPL_TRANSFER(receive) {
  return {.doc = "a value from another rank",
          .op = "receive",
          .holds = "input",
          .counterpart = "from",
          .call = Collective::Kind::receive,
          .run = [](const TransferCall& call) -> Status {
            const TensorType& type = call.in.query->out(0);
            return call.group->run(call.stream, {.kind = Collective::Kind::receive,
                                                 .dtype = type.dtype,
                                                 .count = type.elements(),
                                                 .target = call.target,
                                                 .peer = 1 - call.group->rank()});
          }};
}

}  // namespace epl
