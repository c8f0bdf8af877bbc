// The schedule 1F1B of "PipeDream: Generalized Pipeline Parallelism for DNN Training" (Narayanan et al., 2019), in the
// form that flushes after each step ("Memory-Efficient Pipeline-Parallel DNN Training", Narayanan et al., 2021).
#include <algorithm>

#include "core/strategy/pipeline.h"

namespace epl {

EPL_PIPELINE(one_f_one_b) {
  return {.doc = "a backward call as soon as there is one: no more micro-batches are in flight than stages follow",
          .words = {"PreferBackward", "1F1B"},
          .calls = [](const PipelineShape& shape, int stage) {
            std::vector<PipelineCall> calls;
            const int64_t ahead = std::min<int64_t>(shape.micro_batches, shape.stages - 1 - stage);
            for (int64_t m = 0; m < ahead; ++m) calls.push_back({BlockKind::forward, m});
            for (int64_t m = 0; m < shape.micro_batches; ++m) {
              if (m + ahead < shape.micro_batches) calls.push_back({BlockKind::forward, m + ahead});
              calls.push_back({BlockKind::backward, m});
            }
            return calls;
          }};
}

}  // namespace epl
