// Sizes of a convolution, whichever of its tensors is asked for.
#pragma once

#include "backends/cuda/kernel.h"

namespace epl::cuda {

inline constexpr int conv_dims = 3;  // fewer spatial dimensions are led by ones

struct ConvGeometry {
  int64_t batch, groups, in, out;  // channels per group
  int64_t x[conv_dims], y[conv_dims], kernel[conv_dims], strides[conv_dims], dilations[conv_dims], pads[conv_dims];
  int64_t x_pixels = 1, y_pixels = 1, taps = 1;
};
ConvGeometry conv_geometry(const Query& query, const Shape& x, const Shape& w, const Shape& y);

// Why a convolution or one of its gradients has none: its dimensions, or units that do not divide its batch.
Status has_conv_geometry(const Query& query);

}  // namespace epl::cuda
