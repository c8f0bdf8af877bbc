// "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism" (Huang et al., 2019).
#include "core/strategy/pipeline.h"

namespace epl {

EPL_PIPELINE(gpipe) {
  return {.doc = "all forward calls, then all backward calls; every micro-batch is in flight at once",
          .words = {"PreferForward", "GPipe"},
          .calls =
              [](const PipelineShape& shape, int stage) {
                std::vector<BlockCall> calls;
                for (const BlockKind kind : {BlockKind::forward, BlockKind::backward}) {
                  for (int64_t m = 0; m < shape.micro_batches; ++m) calls.push_back({stage, kind, m});
                }
                return calls;
              },
          .in_flight = [](const PipelineShape& shape, int) { return shape.micro_batches; }};
}

}  // namespace epl
