// The gradient of a strided convolution by its input falls into phases: pixels that are equal modulo the strides meet
// the same taps, and are a product of their own. The products are computed apart and then put together.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/kernels/conv_gather.h"

namespace epl::cpu {

struct ConvPhases {
  struct Phase {
    int64_t at = -1;  // of [channels, images, positions...] in the workspace, in elements; -1: no tap, all 0
    int64_t positions[conv_dims];  // of an image
    int64_t pixels() const { return positions[0] * positions[1] * positions[2]; }
  };
  int64_t images = 0, channels = 0;  // of the full gradient [images, channels, sizes...]
  int64_t sizes[conv_dims], strides[conv_dims];
  int64_t elements = 0;       // of all phases in the workspace
  std::vector<Phase> phases;  // in the order of their first pixels
};

// Writes one channel of one image; `from` is the workspace.
namespace v3 {
void join_phases(const ConvPhases& p, const float* from, int64_t image, int64_t channel, float* to);
}
namespace v4 {
void join_phases(const ConvPhases& p, const float* from, int64_t image, int64_t channel, float* to);
}

}  // namespace epl::cpu
