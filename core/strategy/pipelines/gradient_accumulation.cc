#include "core/strategy/pipeline.h"

namespace epl {

EPL_PIPELINE(gradient_accumulation) {
  return {.doc = "one stage: a micro-batch goes forward and backward in one call, so that they share their memory",
          .calls =
              [](const PipelineShape& shape, int) {
                std::vector<BlockCall> calls;
                for (int64_t m = 0; m < shape.micro_batches; ++m) calls.push_back({0, BlockKind::main, m});
                return calls;
              },
          .in_flight = [](const PipelineShape&, int) { return int64_t{1}; }};
}

}  // namespace epl
