#include "core/program/transfer.h"

namespace epl {

EPL_TRANSFER(copy) {
  return {.doc = "new state over the old where it could not be written in place",
          .run = [](const TransferCall& call) -> Status {
            call.stream.copy(call.target, call.source, call.in.bytes);
            return {};
          }};
}

}  // namespace epl
