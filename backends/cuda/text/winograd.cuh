// Winograd's convolution F(4x4, 3x3) in the CPU's order: a thread transforms a tile of one channel, with the CPU's own
// transforms. At each of 36 positions a product sums the channels, or the tiles.
#pragma once

#include "backends/cuda/text/one_lane.cuh"
#include "backends/cuda/text/operand.cuh"

namespace epl::cpu::gpu {
namespace hn = hwy::one_lane;
using Floats = hn::ScalableTag<float>;
using Vector = float;
}  // namespace epl::cpu::gpu

#include "backends/cpu/kernels/conv_winograd_transforms.simd.h"

namespace epl::cuda {
namespace winograd = epl::cpu::gpu::winograd;

// The tile of outputs, and where its window begins.
struct WinogradTile {
  int64_t image, row, column;
  WinogradTile(int64_t tile, int64_t rows, int64_t columns)
      : image(tile / (rows * columns)), row(tile / columns % rows * 4), column(tile % columns * 4) {}
};

template <int N, void (*transform)(const float (&)[N], float (&)[6]), class Plane>
inline void winograd_window(Plane plane, int64_t height, int64_t width, int64_t top, int64_t left, float* to,
                            int64_t position) {
  winograd::transform_tile<N, 6, transform>(
      [&](int row, int column) {
        const int64_t y = top + row, x = left + column;
        return y >= 0 && y < height && x >= 0 && x < width ? plane[y * width + x] : 0.0f;
      },
      [&](int row, int column, float v) { to[(row * 6 + column) * position] = v; });
}

}  // namespace epl::cuda
