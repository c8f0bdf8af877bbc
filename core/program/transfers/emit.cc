#include "core/program/transfer.h"

namespace epl {

EPL_TRANSFER(emit) {
  return {.doc = "a result into the caller's tensor: all of it, or its piece of the batch",
          .run = [](const TransferCall& call) -> Status {
            if (!call.output) return {};
            const ProgramPort& port = call.program.outputs[static_cast<size_t>(call.in.port)];
            if (port.dim < 0) {
              call.stream.download(call.output, call.source, call.in.bytes);
              return {};
            }
            int64_t run = static_cast<int64_t>(dtype_bytes(port.local_type.dtype)), outer = 1;
            for (int d = port.dim; d < port.local_type.ndim(); ++d) run *= port.local_type.shape[d];
            for (int d = 0; d < port.dim; ++d) outer *= port.local_type.shape[d];
            run /= port.outer;
            outer *= port.outer;
            const int64_t pieces = call.program.mesh.pieces(port.axes);
            for (int64_t i = 0; i < outer; ++i) {
              call.stream.download(static_cast<std::byte*>(call.output) + (i * pieces + call.piece) * run,
                                   call.source + i * run, run);
            }
            return {};
          }};
}

}  // namespace epl
