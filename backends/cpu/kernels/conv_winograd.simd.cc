// The transforms and the products of Winograd's convolution. A vector holds a pixel of neighbouring channels.
#include "backends/cpu/kernels/conv_winograd.h"

#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/kernels/gemm_micro.simd.h"
#include "backends/cpu/kernels/gemm_pack.simd.h"

namespace epl::cpu::EPL_SIMD {
namespace {

constexpr int inputs = winograd_inputs, outputs = winograd_outputs, taps = 3;
constexpr float a = 0.625f, b = 1.5f, a2 = a * a, b2 = b * b;  // the points, but for 0 and infinity

int64_t least(int64_t left, int64_t right) { return left < right ? left : right; }
int64_t clamp(int64_t value, int64_t low, int64_t high) { return value < low ? low : least(value, high); }

HWY_INLINE Vector constant(float value) { return hn::Set(Floats(), value); }

// Along one dimension: inputs to positions, weights to positions, positions to outputs.
HWY_INLINE void transform_inputs(const Vector (&d)[inputs], Vector (&to)[inputs]) {
  const Vector of_a = hn::NegMulAdd(constant(a2), d[2], d[4]), of_b = hn::NegMulAdd(constant(b2), d[2], d[4]);
  const Vector odd_a = hn::NegMulAdd(constant(a2), d[1], d[3]), odd_b = hn::NegMulAdd(constant(b2), d[1], d[3]);
  to[0] = hn::MulAdd(constant(a2 * b2), d[0], hn::NegMulAdd(constant(a2 + b2), d[2], d[4]));
  to[1] = hn::MulAdd(constant(a), odd_b, of_b);
  to[2] = hn::NegMulAdd(constant(a), odd_b, of_b);
  to[3] = hn::MulAdd(constant(b), odd_a, of_a);
  to[4] = hn::NegMulAdd(constant(b), odd_a, of_a);
  to[5] = hn::MulAdd(constant(a2 * b2), d[1], hn::NegMulAdd(constant(a2 + b2), d[3], d[5]));
}
HWY_INLINE void transform_weights(const Vector (&g)[taps], Vector (&to)[inputs]) {
  constexpr float of_a = 1 / (2 * a2 * (a2 - b2)), of_b = 1 / (2 * b2 * (b2 - a2));
  const Vector even_a = hn::Mul(constant(of_a), hn::MulAdd(constant(a2), g[2], g[0]));
  const Vector even_b = hn::Mul(constant(of_b), hn::MulAdd(constant(b2), g[2], g[0]));
  to[0] = hn::Mul(constant(1 / (a2 * b2)), g[0]);
  to[1] = hn::MulAdd(constant(a * of_a), g[1], even_a);
  to[2] = hn::NegMulAdd(constant(a * of_a), g[1], even_a);
  to[3] = hn::MulAdd(constant(b * of_b), g[1], even_b);
  to[4] = hn::NegMulAdd(constant(b * of_b), g[1], even_b);
  to[5] = g[2];
}
HWY_INLINE void transform_outputs(const Vector (&m)[inputs], Vector (&to)[outputs]) {
  const Vector sum_a = hn::Add(m[1], m[2]), sum_b = hn::Add(m[3], m[4]);
  const Vector odd_a = hn::Sub(m[1], m[2]), odd_b = hn::Sub(m[3], m[4]);
  to[0] = hn::Add(m[0], hn::Add(sum_a, sum_b));
  to[1] = hn::MulAdd(constant(b), odd_b, hn::Mul(constant(a), odd_a));
  to[2] = hn::MulAdd(constant(b2), sum_b, hn::Mul(constant(a2), sum_a));
  to[3] = hn::MulAdd(constant(b2 * b), odd_b, hn::MulAdd(constant(a2 * a), odd_a, m[5]));
}

// Both dimensions: an N x N tile of vectors, as `load(row, column)` gives it, to M x M of them.
template <int N, int M, void (*transform)(const Vector (&)[N], Vector (&)[M]), class Load, class Store>
HWY_INLINE void transform_tile(Load load, Store store) {
  Vector half[M][N];
  for (int column = 0; column < N; ++column) {
    Vector from[N], to[M];
    for (int row = 0; row < N; ++row) from[row] = load(row, column);
    transform(from, to);
    for (int row = 0; row < M; ++row) half[row][column] = to[row];
  }
  for (int row = 0; row < M; ++row) {
    Vector to[M];
    transform(half[row], to);
    for (int column = 0; column < M; ++column) store(row, column, to[column]);
  }
}

// The weights of a vector of output channels.
void weights(const Winograd& g, const float* w, int64_t task, float* u) {
  constexpr int all = taps * taps;
  constexpr int64_t block = 16;  // input channels whose weights are contiguous are transposed together
  const int64_t first = task * lanes, count = least(lanes, g.out - first), column = first % g.panel;
  const int64_t width = least(g.panel, (g.out - first + column + lanes - 1) / lanes * lanes);
  float stage[block * all * lanes] = {};
  float* to = u + (first - column) * g.in + column;
  for (int64_t k = 0; k < g.in;) {
    const int64_t some = g.weight_in == all ? least(block, g.in - k) : 1;
    pack_panel(w + first * g.weight_out + k * g.weight_in, g.weight_out, 1, count, some * all, stage, lanes);
    for (int64_t i = 0; i < some; ++i, ++k) {
      const float* from = stage + i * all * lanes;
      transform_tile<taps, inputs, transform_weights>(
          [&](int row, int tap) HWY_ATTR {
            const int at = row * taps + tap;
            return hn::LoadU(Floats(), from + (g.turned ? all - 1 - at : at) * lanes);
          },
          [&](int row, int tap, Vector v)
              HWY_ATTR { hn::StoreU(v, Floats(), to + (row * inputs + tap) * g.weight_position + k * width); });
    }
  }
}

// Neighbouring tiles of a row of tiles; `row` and `column` are those of the first output.
struct TileRun {
  int64_t image, row, column, count;
};
TileRun run_at(const Winograd& g, int64_t tile, int64_t end) {
  const int64_t of_image = g.tiles[0] * g.tiles[1], rest = tile % of_image, column = rest % g.tiles[1];
  return {tile / of_image, rest / g.tiles[1] * outputs, column * outputs, least(g.tiles[1] - column, end - tile)};
}

void clear(float* to, int64_t pixels) {
  for (int64_t i = 0; i < pixels; ++i) hn::StoreU(hn::Zero(Floats()), Floats(), to + i * lanes);
}

// The pixels that the run reads, of `count` channels from `channel` on: rows of `width` vectors.
void stage_inputs(const Winograd& g, const float* x, const TileRun& run, int64_t channel, int64_t count, int64_t width,
                  float* stage) {
  const int64_t plane = g.x[0] * g.x[1], left = run.column - g.pads[1];
  const int64_t begin = clamp(-left, 0, width), stop = clamp(g.x[1] - left, begin, width);
  for (int64_t i = 0; i < inputs; ++i, stage += width * lanes) {
    const int64_t row = run.row - g.pads[0] + i;
    if (row < 0 || row >= g.x[0]) {
      clear(stage, width);
      continue;
    }
    clear(stage, begin);
    pack_panel(x + (run.image * g.in + channel) * plane + row * g.x[1] + left + begin, plane, 1, count, stop - begin,
               stage + begin * lanes, lanes);
    clear(stage + stop * lanes, width - stop);
  }
}

void transform_images(const Winograd& g, const float* x, int64_t begin, int64_t end, float* stage, float* to) {
  for (int64_t channel = 0; channel < g.in; channel += lanes) {
    for (int64_t tile = begin; tile < end;) {
      const TileRun run = run_at(g, tile, end);
      const int64_t width = run.count * outputs + inputs - outputs;
      stage_inputs(g, x, run, channel, least(lanes, g.in - channel), width, stage);
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

// At each position: tiles x input channels times input channels x output channels, which are those from `first` on.
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
      call.packed_b = const_cast<float*>(u) + position * g.weight_position + out * g.in;  // it is read alone
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
      const TileRun run = run_at(g, tile, end);
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

void tiles(const Winograd& g, const float* x, const float* u, const float* bias, int64_t task, float* y,
           float* scratch) {
  float* products = scratch + winograd_positions * g.x_position;
  float* stage = products + winograd_positions * g.y_position;
  const int64_t begin = task / g.panel_tasks * g.task_tiles, end = least(begin + g.task_tiles, g.all_tiles());
  const int64_t first = task % g.panel_tasks * g.task_panels * g.panel,
                last = least(first + g.task_panels * g.panel, g.out);
  if (begin >= end || first >= last) return;
  transform_images(g, x, begin, end, stage, scratch);
  multiply(g, scratch, u, end - begin, first, last, products);
  finish_images(g, products, bias, begin, end, first, last, stage, y);
}

}  // namespace

extern const WinogradLevel winograd_level;
const WinogradLevel winograd_level = {lanes, micro_rows, weights, tiles};

}  // namespace epl::cpu::EPL_SIMD
