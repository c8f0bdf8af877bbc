// "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (Narayanan et al., 2021).
#include <algorithm>

#include "core/base/text.h"
#include "core/strategy/pipeline.h"

namespace epl {
namespace {

// The rounds of a rank: `virtual_devices` micro-batches through one of its stages, then the same through the next one.
BlockCall call_at(const PipelineShape& shape, int virtual_device, BlockKind kind, int64_t number) {
  const int64_t run = shape.virtual_devices, round = run * shape.chunks;
  int64_t chunk = number % round / run;
  if (kind == BlockKind::backward) chunk = shape.chunks - 1 - chunk;
  return {static_cast<int>(chunk) * shape.virtual_devices + virtual_device, kind, number / round * run + number % run};
}

int64_t forward_calls(const PipelineShape& shape) { return shape.micro_batches * shape.chunks; }

// Forward calls in front of the first backward call.
int64_t calls_ahead(const PipelineShape& shape, int virtual_device) {
  return std::min<int64_t>(forward_calls(shape), 2 * (shape.virtual_devices - 1 - virtual_device) +
                                                     (shape.chunks - 1) * shape.virtual_devices);
}

std::vector<BlockCall> calls(const PipelineShape& shape, int virtual_device) {
  const int64_t count = forward_calls(shape), ahead = calls_ahead(shape, virtual_device);
  std::vector<BlockCall> calls;
  for (int64_t i = 0; i < count + ahead; ++i) {
    if (i < count) calls.push_back(call_at(shape, virtual_device, BlockKind::forward, i));
    if (i >= ahead) calls.push_back(call_at(shape, virtual_device, BlockKind::backward, i - ahead));
  }
  return calls;
}

std::string refusal(const PipelineShape& shape) {
  if (shape.micro_batches % shape.virtual_devices == 0) return {};
  return cat("goes in rounds of ", shape.virtual_devices, " micro-batches, one for each virtual device, and ",
             shape.micro_batches, " do not divide by that");
}

}  // namespace

EPL_PIPELINE(interleaved) {
  return {.doc = "1F1B with several stages on each rank: shorter to fill and to drain, with more to send",
          .words = {"interleaved"},
          .chunks = 0,
          .refusal = refusal,
          .calls = calls,
          .in_flight = [](const PipelineShape& shape, int virtual_device) {
            return std::min(forward_calls(shape), calls_ahead(shape, virtual_device) + 1);
          }};
}

}  // namespace epl
