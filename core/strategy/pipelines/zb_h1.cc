// The schedule ZB-H1 of "Zero Bubble Pipeline Parallelism" (Qi et al., 2023).
#include <algorithm>

#include "core/strategy/pipeline.h"

namespace epl {
namespace {

// A stage puts off the gradients of its weights by as many micro-batches as stages come before it: then no rank has
// more in flight than the first one has in 1F1B.
std::vector<BlockCall> calls(const PipelineShape& shape, int stage) {
  std::vector<BlockCall> calls;
  const int64_t ahead = std::min<int64_t>(shape.micro_batches, shape.virtual_devices - 1 - stage);
  for (int64_t m = 0; m < ahead; ++m) calls.push_back({stage, BlockKind::forward, m});
  int64_t weights = 0;
  for (int64_t m = 0; m < shape.micro_batches; ++m) {
    if (m + ahead < shape.micro_batches) calls.push_back({stage, BlockKind::forward, m + ahead});
    calls.push_back({stage, BlockKind::backward, m});
    if (m >= stage) calls.push_back({stage, BlockKind::weight, weights++});
  }
  while (weights < shape.micro_batches) calls.push_back({stage, BlockKind::weight, weights++});
  return calls;
}

}  // namespace

EPL_PIPELINE(zb_h1) {
  return {.doc = "1F1B in which gradients of weights fill what would be idle, with the memory of 1F1B",
          .words = {"ZB-H1"},
          .has_weight_blocks = true,
          .calls = calls,
          .in_flight = [](const PipelineShape& shape, int) {
            return std::min<int64_t>(shape.micro_batches, shape.virtual_devices);
          }};
}

}  // namespace epl
