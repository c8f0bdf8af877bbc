// Winograd's convolution F(4x4, 3x3): a tile of 4 x 4 outputs takes 36 multiplications for each pair of channels
// instead of 144.
//
// Tiles of 6 x 6 inputs and weights of 3 x 3 are transformed to 36 positions each, at each position the channels are a
// matrix product of their own, and its results are transformed to outputs. The points are 0, 5/8, -5/8, 3/2, -3/2 and
// infinity: with them the error is about twice that of a chain of 9 * channels multiply-adds, where the integers
// usually taken give four to five times as much.
//
// The bits of an output depend on its image and its channel's weights alone: tiles lie on a grid from the first output
// on, transforms are the same operations for every tile, and products sum channels as those of gemm.h sum k.
//
// One task that takes all tiles (small images) transforms the weights panel by panel and multiplies each panel at once:
// the transformed weights of 512 x 512 channels are 38 MB, which no cache holds.
#pragma once

#include <cstdint>

namespace epl {
class KernelTable;
}

namespace epl::cpu {

inline constexpr int64_t winograd_outputs = 4, winograd_inputs = 6, winograd_positions = 36;

// The convolution of images [images, in, sizes...] to [images, out, sizes...], and how it is cut into tasks.
struct Winograd {
  int64_t images = 0, in = 0, out = 0;
  int64_t x[2], y[2], pads[2];             // height, width; pads may be negative
  int64_t tiles[2];                        // of an image
  int64_t weight_out = 0, weight_in = 0;   // strides of the weights' channels; the taps are contiguous
  bool flipped = false;                    // last tap first
  int64_t task_tiles = 0, tile_tasks = 0;  // a task computes some tiles of some output channels
  int64_t task_panels = 0, panel_tasks = 0;
  int64_t panel = 0, lanes = 0;  // output channels of a panel and of a vector
  bool own_weights = false;      // tasks transform the weights that they take, panel by panel
  // In floats: between positions, and between tiles of a position.
  int64_t weight_position = 0, x_position = 0, x_tile = 0, y_position = 0, y_tile = 0;
  int64_t stage = 0;  // floats: the pixels of a row of tiles, a vector of channels each

  int64_t all_tiles() const { return images * tiles[0] * tiles[1]; }
  int64_t panels() const { return (out + panel - 1) / panel; }
  int64_t tasks() const { return tile_tasks * panel_tasks; }
  int64_t weight_tasks() const { return (out + lanes - 1) / lanes; }
  // In floats: the transformed weights that all tasks read, and what a task needs.
  int64_t shared_floats() const { return own_weights ? 0 : winograd_positions * weight_position; }
  int64_t task_floats() const {
    return winograd_positions * (x_position + y_position + (own_weights ? weight_position : 0)) + stage;
  }
};

// What each level of processor gives. `u` holds the transformed weights, `scratch` task_floats(). `w` is read where
// tasks have weights of their own, and `u` is not.
struct WinogradLevel {
  int lanes, rows;  // of a vector, and of tiles that the micro-kernel takes at a time
  void (*weights)(const Winograd& g, const float* w, int64_t task, float* u);
  void (*tiles)(const Winograd& g, const float* x, const float* w, const float* u, const float* bias, int64_t task,
                float* y, float* scratch);
};

// The row of `op`, which is conv_grad_input where `gradient`.
void add_winograd_row(KernelTable& table, const char* op, bool gradient);

namespace v3 {
extern const WinogradLevel winograd_level;
}
namespace v4 {
extern const WinogradLevel winograd_level;
}

}  // namespace epl::cpu
