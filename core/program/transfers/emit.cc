#include "core/program/shards.h"
#include "core/program/transfer.h"

namespace epl {

EPL_TRANSFER(emit) {
  return {.doc = "a result into the caller's tensor: all of it, or its shard of the batch",
          .run = [](const TransferCall& call) -> Status {
            if (!call.output) return {};
            const ProgramPort& port = call.program.outputs[call.in.port];
            auto* const output = static_cast<std::byte*>(call.output);
            if (port.dim() < 0) {
              call.give(output, call.source, call.in.bytes);
              return {};
            }
            for_each_run(port.global_type, port.sharding, call.program.mesh, call.coordinates,
                         [&](int64_t global, int64_t local, int64_t bytes) {
                           call.give(output + global, call.source + local, bytes);
                         });
            return {};
          }};
}

}  // namespace epl
