// Winograd's gradient by the weights, task by task. See conv_winograd_weight.h.
#include "backends/cpu/kernels/conv_winograd_weight.h"

#include "backends/cpu/kernels/conv_winograd.simd.h"
#include "backends/cpu/kernels/gemm.h"

namespace epl::cpu::EPL_SIMD {
namespace {

using namespace winograd;

constexpr int rows = lanes / 2;  // of the micro-kernel, which are channels of x: a vector of them is two panels
constexpr int all_taps = taps * taps;
using Half = hn::Half<Floats>;

// A panel's width: the last one may be a vector.
int64_t width_at(const WinogradGradient& g, int64_t first) { return g.out - first > lanes ? 2 * lanes : lanes; }

void transform_x(const WinogradGradient& g, const float* x, int64_t channel, float* to, float* stage) {
  const int64_t tiles = g.unit_tiles();
  to += channel * tiles;
  for (int64_t tile = 0; tile < tiles;) {
    const TileRun run = run_at(g.tiles, tile, tiles);
    const int64_t width = run.count * outputs + inputs - outputs;
    stage_window(x + (run.image * g.in + channel) * g.x[0] * g.x[1], g.x, least(lanes, g.in - channel),
                 run.row - g.pads[0], run.column - g.pads[1], inputs, width, stage);
    for (int64_t i = 0; i < run.count; ++i, ++tile) {
      const float* from = stage + i * outputs * lanes;
      transform_tile<inputs, inputs, transform_inputs>(
          [&](int row, int column) HWY_ATTR { return hn::LoadU(Floats(), from + (row * width + column) * lanes); },
          [&](int row, int column, Vector v) HWY_ATTR {
            float* at = to + (row * inputs + column) * g.x_position + tile * rows;
            hn::StoreU(hn::LowerHalf(Half(), v), Half(), at);
            hn::StoreU(hn::UpperHalf(Half(), v), Half(), at + rows * tiles);
          });
    }
  }
}

void transform_dy(const WinogradGradient& g, const float* dy, int64_t channel, float* to, float* stage) {
  const int64_t tiles = g.unit_tiles(), column_of_panel = channel % g.panel, first = channel - column_of_panel;
  const int64_t panel = width_at(g, first);
  to += first * tiles + column_of_panel;
  for (int64_t tile = 0; tile < tiles;) {
    const TileRun run = run_at(g.tiles, tile, tiles);
    const int64_t width = run.count * outputs;
    stage_window(dy + (run.image * g.out + channel) * g.y[0] * g.y[1], g.y, least(lanes, g.out - channel), run.row,
                 run.column, outputs, width, stage);
    for (int64_t i = 0; i < run.count; ++i, ++tile) {
      const float* from = stage + i * outputs * lanes;
      transform_tile<outputs, inputs, transform_gradients>(
          [&](int row, int column) HWY_ATTR { return hn::LoadU(Floats(), from + (row * width + column) * lanes); },
          [&](int row, int column, Vector v)
              HWY_ATTR { hn::StoreU(v, Floats(), to + (row * inputs + column) * g.y_position + tile * panel); });
    }
  }
}

void transform(const WinogradGradient& g, const float* x, const float* dy, int64_t unit, int64_t task, float* of_x,
               float* of_dy, float* scratch) {
  // Channels behind the last one stay 0.
  const int64_t stage = inputs * (g.tiles[1] * outputs + inputs - outputs);
  if (task < g.in_blocks()) {
    if ((task + 1) * lanes > g.in) clear(scratch, stage);
    transform_x(g, x + unit * g.images * g.in * g.x[0] * g.x[1], task * lanes, of_x, scratch);
  } else {
    const int64_t channel = (task - g.in_blocks()) * lanes;
    if (channel + lanes > g.out) clear(scratch, stage);
    transform_dy(g, dy + unit * g.images * g.out * g.y[0] * g.y[1], channel, of_dy, scratch);
  }
}

void add_floats(const float* left, float* sums, int64_t count) {
  for (int64_t i = 0; i < count; i += lanes)
    hn::StoreU(hn::Add(hn::LoadU(Floats(), left + i), hn::LoadU(Floats(), sums + i)), Floats(), sums + i);
}

void multiply(const WinogradGradient& g, const float* of_x, const float* of_dy, int64_t unit, int64_t task, float* tree,
              float* dw, float* scratch) {
  const int64_t tiles = g.unit_tiles(), channel = task / g.out_tasks() * lanes, channels = least(lanes, g.in - channel);
  const int64_t most = g.task_panels * g.panel, first = task % g.out_tasks() * most, last = least(first + most, g.out);
  const int64_t position = lanes * most + lanes;  // a vector more: see Winograd
  float sums[rows * 2 * lanes];
  MicroCall call;
  call.length = tiles;
  call.depth = least(tiles, gemm_k_block);
  call.units = 1;
  call.end.final = true;
  call.end.c_step = most;
  call.end.passing_tree = sums;
  for (int64_t p = 0; p < winograd_positions; ++p) {
    for (int64_t out = first; out < last; out += g.panel) {
      call.packed_b = const_cast<float*>(of_dy) + p * g.y_position + out * tiles;  // it is read alone
      const bool wide = width_at(g, out) > lanes;
      for (int64_t row = 0; row < channels; row += rows) {
        call.a = of_x + p * g.x_position + (channel + row) * tiles;
        call.end.c = scratch + p * position + row * most + out - first;
        wide ? micro<rows, 2, AMode::packed, BMode::packed>(call) : micro<rows, 1, AMode::packed, BMode::packed>(call);
      }
    }
  }
  // Blocks of [channel of x][tap][a vector of channels of dy].
  const int64_t block = lanes * all_taps * lanes;
  float* own = scratch + winograd_positions * position;
  for (int64_t out = first; out < last; out += lanes) {
    for (int64_t row = 0; row < channels; ++row) {
      const float* from = scratch + row * most + out - first;
      transform_tile<inputs, taps, transform_sums>(
          [&](int y, int x) HWY_ATTR { return hn::LoadU(Floats(), from + (y * inputs + x) * position); },
          [&](int y, int x, Vector v)
              HWY_ATTR { hn::StoreU(v, Floats(), own + (row * all_taps + y * taps + x) * lanes); });
    }
    // Subtrees of units join as a binary counter carries.
    float* waiting = tree + (channel / lanes * g.out_blocks() + out / lanes) * block;
    const int64_t used = channels * all_taps * lanes;
    for (int64_t carry = unit; carry & 1; carry >>= 1, waiting += g.level) add_floats(waiting, own, used);
    if (unit + 1 < g.units) {
      for (int64_t i = 0; i < used; i += lanes) hn::StoreU(hn::LoadU(Floats(), own + i), Floats(), waiting + i);
    } else {
      pack_panel(own, lanes, 1, channels * all_taps, least(lanes, g.out - out), dw + (out * g.in + channel) * all_taps,
                 g.in * all_taps);
    }
  }
}

}  // namespace

extern const WinogradGradientLevel winograd_gradient_level;
const WinogradGradientLevel winograd_gradient_level = {lanes, transform, multiply};

}  // namespace epl::cpu::EPL_SIMD
