// Winograd's gradient by the weights, F(3x3, 4x4): for each tile of 4 x 4 outputs the 6 x 6 inputs and the outputs'
// gradients are transformed to 36 positions. At each, a product sums the tiles of a unit; its results are transformed
// to 3 x 3 taps. Units are added as a binary tree of taps, so that the bits are those of any cut of the batch.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/conv_winograd.h"

namespace epl::cpu {

struct WinogradGradient {
  int64_t images = 0, units = 1;  // images of a unit
  int64_t in = 0, out = 0;
  int64_t x[2], y[2], pads[2], tiles[2];
  int64_t lanes = 0, panel = 0, task_panels = 0;  // as in Winograd
  // In floats: between positions of the transformed tensors, and what a thread needs.
  int64_t x_position = 0, y_position = 0, scratch = 0;
  int64_t level = 0;  // floats of a waiting subtree of units

  int64_t unit_tiles() const { return images * tiles[0] * tiles[1]; }
  int64_t in_blocks() const { return (in + lanes - 1) / lanes; }
  int64_t out_blocks() const { return (out + lanes - 1) / lanes; }
  int64_t transforms() const { return in_blocks() + out_blocks(); }
  int64_t out_tasks() const { return (out + panel * task_panels - 1) / (panel * task_panels); }
  int64_t products() const { return in_blocks() * out_tasks(); }
};

struct WinogradGradientLevel {
  int lanes;
  // A task of a unit each: transforms some channels of x or dy; multiplies some of x with some of dy.
  void (*transform)(const WinogradGradient& g, const float* x, const float* dy, int64_t unit, int64_t task, float* of_x,
                    float* of_dy, float* scratch);
  void (*multiply)(const WinogradGradient& g, const float* of_x, const float* of_dy, int64_t unit, int64_t task,
                   float* tree, float* dw, float* scratch);
};

// The row of conv_grad_weight.
void add_winograd_weight_row(KernelTable& table);

namespace v3 {
extern const WinogradGradientLevel winograd_gradient_level;
}
namespace v4 {
extern const WinogradGradientLevel winograd_gradient_level;
}

}  // namespace epl::cpu
