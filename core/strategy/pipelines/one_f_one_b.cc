// The schedule 1F1B of "PipeDream: Generalized Pipeline Parallelism for DNN Training" (Narayanan et al., 2019), in the
// form that flushes after each step ("Memory-Efficient Pipeline-Parallel DNN Training", Narayanan et al., 2021). The
// original EPL calls it PreferBackward, and PreferBackwardOptimizer where each stage but the last has one more
// micro-batch in flight.
#include <algorithm>

#include "core/strategy/pipeline.h"

namespace epl {
namespace {

std::vector<BlockCall> one_by_one(const PipelineShape& shape, int stage, int64_t ahead) {
  std::vector<BlockCall> calls;
  ahead = std::min(shape.micro_batches, ahead);
  for (int64_t m = 0; m < ahead; ++m) calls.push_back({stage, BlockKind::forward, m});
  for (int64_t m = 0; m < shape.micro_batches; ++m) {
    if (m + ahead < shape.micro_batches) calls.push_back({stage, BlockKind::forward, m + ahead});
    calls.push_back({stage, BlockKind::backward, m});
  }
  return calls;
}

}  // namespace

EPL_PIPELINE(one_f_one_b) {
  return {.doc = "a backward call as soon as there is one: no more micro-batches are in flight than stages follow",
          .words = {"PreferBackward", "1F1B"},
          .calls = [](const PipelineShape& shape,
                      int stage) { return one_by_one(shape, stage, shape.virtual_devices - 1 - stage); },
          .in_flight = [](const PipelineShape& shape,
                          int stage) { return std::min<int64_t>(shape.micro_batches, shape.virtual_devices - stage); }};
}

EPL_PIPELINE(one_more_forward) {
  return {.doc = "1F1B with one more micro-batch in flight, so that a stage need not wait for what the next one sends",
          .words = {"PreferBackwardOptimizer"},
          .calls =
              [](const PipelineShape& shape, int stage) {
                const bool last = stage == shape.virtual_devices - 1;
                return one_by_one(shape, stage, last ? 0 : shape.virtual_devices - stage);
              },
          .in_flight =
              [](const PipelineShape& shape, int stage) {
                const bool last = stage == shape.virtual_devices - 1;
                return std::min<int64_t>(shape.micro_batches, last ? 1 : shape.virtual_devices - stage + 1);
              }};
}

}  // namespace epl
