// Whether a step is applied, where the device decides that.
#include "core/program/transfer.h"

namespace epl {

EPL_TRANSFER(decide) {
  return {.doc = "whether the step is applied, as all ranks say: what changes the state looks at the answer",
          .decides = true,
          .run = [](const TransferCall& call) -> Status {
            if (!call.group) {
              call.stream.copy(call.target, call.source, sizeof(int64_t));
              return {};
            }
            return call.group->run(call.stream, {.kind = Collective::Kind::all_reduce,
                                                 .dtype = DType::i64,
                                                 .count = 1,
                                                 .source = call.source,
                                                 .target = call.target,
                                                 .reduction = Reduction::max});
          }};
}

}  // namespace epl
