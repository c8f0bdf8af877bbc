// Winograd's convolution, task by task. See conv_winograd.h.
#include "backends/cpu/kernels/conv_winograd.simd.h"

#include "backends/cpu/kernels/gemm.h"

namespace epl::cpu::EPL_SIMD {
namespace {

using namespace winograd;

// The weights of the output channels from `first` on, a vector of them, to where their panel lies.
void transform_weights_of(const Winograd& g, const float* w, int64_t first, float* panel) {
  constexpr int all = taps * taps;
  constexpr int64_t block = 16;  // input channels whose weights are contiguous are transposed together
  const int64_t count = least(lanes, g.out - first), column = first % g.panel;
  const int64_t width = least(g.panel, (g.out - first + column + lanes - 1) / lanes * lanes);
  float stage[block * all * lanes] = {};
  float* to = panel + column;
  for (int64_t k = 0; k < g.in;) {
    const int64_t some = g.weight_in == all ? least(block, g.in - k) : 1;
    pack_panel(w + first * g.weight_out + k * g.weight_in, g.weight_out, 1, count, some * all, stage, lanes);
    for (int64_t i = 0; i < some; ++i, ++k) {
      const float* from = stage + i * all * lanes;
      transform_tile<taps, inputs, transform_weights>(
          [&](int row, int tap) HWY_ATTR {
            const int at = row * taps + tap;
            return hn::LoadU(Floats(), from + (g.flipped ? all - 1 - at : at) * lanes);
          },
          [&](int row, int tap, Vector v)
              HWY_ATTR { hn::StoreU(v, Floats(), to + (row * inputs + tap) * g.weight_position + k * width); });
    }
  }
}

void weights(const Winograd& g, const float* w, int64_t task, float* u) {
  const int64_t first = task * lanes;
  transform_weights_of(g, w, first, u + first / g.panel * g.panel * g.in);
}

void transform_images(const Winograd& g, const float* x, int64_t begin, int64_t end, float* stage, float* to) {
  for (int64_t channel = 0; channel < g.in; channel += lanes) {
    for (int64_t tile = begin; tile < end;) {
      const TileRun run = run_at(g.tiles, tile, end);
      const int64_t width = run.count * outputs + inputs - outputs;
      stage_window(x + (run.image * g.in + channel) * g.x[0] * g.x[1], g.x, least(lanes, g.in - channel),
                   run.row - g.pads[0], run.column - g.pads[1], inputs, width, stage);
      for (int64_t i = 0; i < run.count; ++i, ++tile) {
        const float* from = stage + i * outputs * lanes;
        float* at = to + (tile - begin) * g.x_tile + channel;
        transform_tile<inputs, inputs, transform_inputs>(
            [&](int row, int column) HWY_ATTR { return hn::LoadU(Floats(), from + (row * width + column) * lanes); },
            [&](int row, int column, Vector v)
                HWY_ATTR { hn::StoreU(v, Floats(), at + (row * inputs + column) * g.x_position); });
      }
    }
  }
}

template <int R = micro_rows> Micro product_kernel(int64_t rows, int64_t vectors) {
  if constexpr (R == 0) {
    return nullptr;
  } else {
    if (rows != R) return product_kernel<R - 1>(rows, vectors);
    return vectors == 1 ? micro<R, 1, AMode::rows, BMode::packed> : micro<R, 2, AMode::rows, BMode::packed>;
  }
}

// At each position: tiles x input channels times input channels x output channels, which are those from `first` on, as
// `u` has them.
void multiply(const Winograd& g, const float* x, const float* u, int64_t tiles, int64_t first, int64_t last, float* y) {
  const int64_t cuts = (tiles + micro_rows - 1) / micro_rows;
  float sums[micro_rows * 2 * lanes];
  MicroCall call;
  call.length = g.in;
  call.depth = least(g.in, gemm_k_block);
  call.units = 1;
  call.a_step = g.x_tile;
  call.end.final = true;
  call.end.c_step = g.y_tile;
  call.end.passing_tree = sums;
  for (int64_t position = 0; position < winograd_positions; ++position) {
    for (int64_t out = first; out < last; out += g.panel) {
      const int64_t vectors = least(g.panel, g.out - out + lanes - 1) / lanes;
      call.packed_b = const_cast<float*>(u) + position * g.weight_position + (out - first) * g.in;  // it is read alone
      for (int64_t cut = 0; cut < cuts; ++cut) {
        const int64_t row = tiles * cut / cuts, rows = tiles * (cut + 1) / cuts - row;
        call.a = x + position * g.x_position + row * g.x_tile;
        call.end.c = y + position * g.y_position + row * g.y_tile + out - first;
        product_kernel(rows, vectors)(call);
      }
    }
  }
}

void finish_images(const Winograd& g, const float* from, const float* bias, int64_t begin, int64_t end, int64_t first,
                   int64_t last, float* stage, float* y) {
  const int64_t plane = g.y[0] * g.y[1];
  for (int64_t out = first; out < last; out += lanes) {
    const int64_t count = least(lanes, last - out);
    const auto own = hn::FirstN(Floats(), static_cast<size_t>(count));
    const Vector added = bias ? hn::MaskedLoad(own, Floats(), bias + out) : hn::Zero(Floats());
    for (int64_t tile = begin; tile < end;) {
      const TileRun run = run_at(g.tiles, tile, end);
      const int64_t width = run.count * outputs;
      for (int64_t i = 0; i < run.count; ++i, ++tile) {
        const float* at = from + (tile - begin) * g.y_tile + out - first;
        transform_tile<inputs, outputs, transform_outputs>(
            [&](int row, int column)
                HWY_ATTR { return hn::LoadU(Floats(), at + (row * inputs + column) * g.y_position); },
            [&](int row, int column, Vector v) HWY_ATTR {
              if (bias) v = hn::Add(v, added);
              hn::StoreU(v, Floats(), stage + (row * width + i * outputs + column) * lanes);
            });
      }
      const int64_t rows = least(outputs, g.y[0] - run.row), columns = least(width, g.y[1] - run.column);
      float* to = y + (run.image * g.out + out) * plane + run.row * g.y[1] + run.column;
      for (int64_t row = 0; row < rows; ++row)
        pack_panel(stage + row * width * lanes, lanes, 1, columns, count, to + row * g.y[1], plane);
    }
  }
}

void tiles(const Winograd& g, const float* x, const float* w, const float* u, const float* bias, int64_t task, float* y,
           float* scratch) {
  float* products = scratch + winograd_positions * g.x_position;
  float* stage = products + winograd_positions * g.y_position;
  const int64_t begin = task / g.panel_tasks * g.task_tiles, end = least(begin + g.task_tiles, g.all_tiles());
  const int64_t first = task % g.panel_tasks * g.task_panels * g.panel,
                last = least(first + g.task_panels * g.panel, g.out);
  if (begin >= end || first >= last) return;
  transform_images(g, x, begin, end, stage, scratch);
  if (g.own_weights) {
    // A panel's weights stay in the caches until they have been multiplied: all of them need not fit there.
    float* own = stage + g.stage;
    for (int64_t out = first; out < last; out += g.panel) {
      const int64_t end_of_panel = least(out + g.panel, last);
      for (int64_t vector = out; vector < end_of_panel; vector += lanes) transform_weights_of(g, w, vector, own);
      multiply(g, scratch, own, end - begin, out, end_of_panel, products + out - first);
    }
  } else {
    multiply(g, scratch, u + first * g.in, end - begin, first, last, products);
  }
  finish_images(g, products, bias, begin, end, first, last, stage, y);
}

}  // namespace

extern const WinogradLevel winograd_level;
const WinogradLevel winograd_level = {lanes, micro_rows, weights, tiles};

}  // namespace epl::cpu::EPL_SIMD
