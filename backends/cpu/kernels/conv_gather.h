// The operands of a convolution as matrices, for the packs of the order-invariant product: nothing the size of all
// patches is ever stored.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/gemm.h"

namespace epl::cpu {

inline constexpr int conv_dims = 3;  // fewer spatial dimensions are led by ones

// Patches of a batch of images as a matrix: a row per (channel, tap), a column per (image, position). Along dimension d
// the element lies at position * step + start + tap * tap_step, and is 0 where that is outside.
struct Patches {
  const float* data = nullptr;
  int64_t image = 0, group = 0, channel = 0;  // strides in elements
  int64_t positions[conv_dims], sizes[conv_dims], kernel[conv_dims];
  int64_t step[conv_dims], start[conv_dims], tap_step[conv_dims];
  int64_t columns() const { return positions[0] * positions[1] * positions[2]; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

// A batch of images as a matrix: a row per channel, a column per (image, pixel).
struct Images {
  const float* data = nullptr;
  int64_t image = 0, group = 0;  // strides in elements
  int64_t pixels = 0;
};

// Weights [out, in, kernel...] as a matrix: a row per input channel, a column per (output channel, used tap). Along
// dimension d the taps first, first + skip, ... are used.
struct FlippedWeights {
  const float* data = nullptr;
  int64_t group = 0, in = 0, taps = 0;
  int64_t kernel[conv_dims], used[conv_dims], first[conv_dims], skip[conv_dims];
};

// As GemmPack; the product's number is the group. The context is one of the above.
#define EPL_CONV_PACKS                                                                                        \
  void pack_patches(const void*, int64_t, int64_t, int64_t, int64_t, int64_t, float*, int64_t); /* Patches */ \
  void pack_patches_across(const void*, int64_t, int64_t, int64_t, int64_t, int64_t, float*,                  \
                           int64_t); /* Patches, transposed */                                                \
  void pack_images(const void*, int64_t, int64_t, int64_t, int64_t, int64_t, float*, int64_t); /* Images */   \
  void pack_flipped_weights(const void*, int64_t, int64_t, int64_t, int64_t, int64_t, float*,                 \
                            int64_t); /* FlippedWeights */
namespace v3 {
EPL_CONV_PACKS
}
namespace v4 {
EPL_CONV_PACKS
}
#undef EPL_CONV_PACKS

}  // namespace epl::cpu
