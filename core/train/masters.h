// Trains files whose parameters have 16 bits.
#pragma once

#include "core/train/train_step.h"

namespace epl {

// An update is far smaller than a rounding of its 16-bit parameter, and Adam's squares are below the smallest number of
// float16. So each f16 or bf16 parameter that is trained becomes one of f32 under its name: its master. The graph uses
// a cast of it to the old type. The model computes as its file says, while gradients, optimizer state and checkpoints
// have 32 bits.
Graph with_masters(const Graph& graph, const TrainOptions& options);

}  // namespace epl
