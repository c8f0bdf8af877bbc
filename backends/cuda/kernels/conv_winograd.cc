#include "backends/cuda/kernels/conv_winograd.h"

#include <algorithm>
#include <bit>

#include "backends/cuda/generate/elements.h"
#include "backends/cuda/generate/product.h"
#include "backends/cuda/generate/steps.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

constexpr std::string_view winograd_file = "backends/cuda/text/winograd.cuh";
constexpr int64_t taps = 3, positions = 36;
// When the CPU takes it: the numbers of conv_winograd.cc and conv_winograd_weight.cc.
constexpr int64_t least_channels = 16, least_outputs = 6, least_unit_tiles = 16;

bool all_are(const std::vector<int64_t>& values, int64_t value) {
  return std::ranges::all_of(values, [&](int64_t v) { return v == value; });
}
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

Status accepts(const Query& q, const Shape& x, const Shape& w) {
  EPL_TRY(sums_are_wide(q));
  EPL_TRY(require(x.size() == 4 && w[2] == taps && w[3] == taps, "other than 3 x 3 taps"));
  EPL_TRY(require(all_are(q.integers("strides"), 1) && all_are(q.integers("dilations"), 1),
                  "strides or dilations other than 1"));
  EPL_TRY(require(q.integer("groups") == 1, "groups"));
  return require(!q.splits_keep_bits, "a split of rows would move the tiles, and with them bits");
}

struct Sizes {
  int64_t images, in, out, x[2], y[2], pads[2], tiles[2];
  int64_t all_tiles() const { return images * tiles[0] * tiles[1]; }
  std::string text() const {
    return cat(constant("in", in), constant("out", out), constant("x_height", x[0]), constant("x_width", x[1]),
               constant("y_height", y[0]), constant("y_width", y[1]), constant("top", pads[0]),
               constant("left", pads[1]), constant("tile_rows", tiles[0]), constant("tile_columns", tiles[1]),
               constant("tiles", all_tiles()));
  }
};
void set_sizes(const Query& q, Sizes& s, const Shape& x, const Shape& y, bool gradient) {
  const std::vector<int64_t>& pads = q.integers("pads");
  for (size_t d = 0; d < 2; ++d) {
    s.x[d] = x[d + 2];
    s.y[d] = y[d + 2];
    const int64_t pad = pads.empty() ? 0 : pads[d];
    s.pads[d] = gradient ? taps - 1 - pad : pad;
    s.tiles[d] = ceil_div(s.y[d], 4);
  }
}

// [position][channel][tile]: neighbouring threads are neighbouring tiles.
constexpr std::string_view convolution = R"text(
extern "C" __global__ void weights(const Memory* w, float* u) {
  const long long t = (long long)blockIdx.x * 256 + threadIdx.x;
  if (t >= in * out) return;
  const Operand from = Operand{w} + (t % out * weight_out + t / out * weight_in);
  winograd::transform_tile<3, 6, winograd::transform_weights>(
      [&](int row, int tap) { return from[flipped ? 8 - (row * 3 + tap) : row * 3 + tap]; },
      [&](int row, int tap, float v) { u[(row * 6 + tap) * (in * out) + t] = v; });
}
extern "C" __global__ void inputs(const Memory* x, float* v) {
  const long long t = (long long)blockIdx.x * 256 + threadIdx.x;
  if (t >= in * tiles) return;
  const WinogradTile tile(t % tiles, tile_rows, tile_columns);
  winograd_window<6, winograd::transform_inputs>(
      Operand{x} + (tile.image * in + t / tiles) * (x_height * x_width), x_height, x_width, tile.row - top,
      tile.column - left, v + t, in * tiles);
}
extern "C" __global__ void outputs(const float* m, const float* bias, float* y) {
  const long long t = (long long)blockIdx.x * 256 + threadIdx.x;
  if (t >= out * tiles) return;
  const long long channel = t / tiles;
  const WinogradTile tile(t % tiles, tile_rows, tile_columns);
  float* to = y + (tile.image * out + channel) * (y_height * y_width);
  winograd::transform_tile<6, 4, winograd::transform_outputs>(
      [&](int row, int column) { return m[(row * 6 + column) * (out * tiles) + t]; },
      [&](int row, int column, float v) {
        if (bias) v = v + bias[channel];
        if (tile.row + row < y_height && tile.column + column < y_width)
          to[(tile.row + row) * y_width + tile.column + column] = v;
      });
}
)text";

Result<Kernel> convolve(const Query& q, bool gradient) {
  const Shape &x = q.in(0).shape, &w = q.in(1).shape, &y = q.out(0).shape;
  EPL_TRY(accepts(q, x, w));
  EPL_TRY(require(std::min(w[0], w[1]) >= least_channels, "too few channels to pay for the transforms"));
  Sizes s{};
  s.images = x[0];
  s.in = x[1];
  s.out = y[1];
  set_sizes(q, s, x, y, gradient);
  EPL_TRY(require(s.y[0] * s.y[1] >= least_outputs * s.tiles[0] * s.tiles[1], "images too small to fill tiles"));
  Kernel kernel;
  const int64_t tiles = s.all_tiles();
  if (tiles == 0) return kernel;
  const int64_t of_weights = line_aligned(positions * s.in * s.out * 4),
                of_inputs = line_aligned(positions * s.in * tiles * 4);
  kernel.workspace_bytes = of_weights + of_inputs + line_aligned(positions * s.out * tiles * 4);
  const Argument u = workspace(0), v = workspace(of_weights), m = workspace(of_weights + of_inputs);
  const std::string body =
      cat(operand_types(q.in(0).dtype), s.text(), constant("weight_out", gradient ? taps * taps : w[1] * taps * taps),
          constant("weight_in", gradient ? w[1] * taps * taps : taps * taps),
          "constexpr bool flipped = ", gradient ? "true" : "false", ";\n", convolution);
  const std::string text = program({winograd_file}, body);
  kernel.launches.push_back(launch_threads(text, "weights", s.in * s.out, {input(1), u}));
  kernel.launches.push_back(launch_threads(text, "inputs", s.in * tiles, {input(0), v}));
  Product p;  // u [position, in, out] and v [position, in, tile] to m [position, out, tile]
  p.m = s.out;
  p.n = tiles;
  p.k = s.in;
  p.batch = positions;
  p.a_rows_follow = true;
  p.a = cat("a_data[(batch * ", s.in, " + k) * ", s.out, " + row]");
  p.b = cat("b_data[(batch * ", s.in, " + k) * ", tiles, " + column]");
  p.c = cat("(batch * ", s.out, " + row) * ", tiles, " + column");
  add_product(kernel, p, u, v, Argument{}, m);
  kernel.launches.push_back(
      launch_threads(text, "outputs", s.out * tiles, {m, !gradient && q.has(2) ? input(2) : Argument{}, output(0)}));
  return kernel;
}

constexpr std::string_view weight_gradient = R"text(
extern "C" __global__ void inputs(const Memory* x, float* v, long long unit) {
  const long long t = (long long)blockIdx.x * 256 + threadIdx.x;
  if (t >= in * tiles) return;
  const WinogradTile tile(t % tiles, tile_rows, tile_columns);
  winograd_window<6, winograd::transform_inputs>(
      Operand{x} + ((unit * images + tile.image) * in + t / tiles) * (x_height * x_width), x_height, x_width,
      tile.row - top, tile.column - left, v + t, in * tiles);
}
extern "C" __global__ void gradients(const Memory* dy, float* v, long long unit) {
  const long long t = (long long)blockIdx.x * 256 + threadIdx.x;
  if (t >= out * tiles) return;
  const WinogradTile tile(t % tiles, tile_rows, tile_columns);
  winograd_window<4, winograd::transform_gradients>(
      Operand{dy} + ((unit * images + tile.image) * out + t / tiles) * (y_height * y_width), y_height, y_width,
      tile.row, tile.column, v + t, out * tiles);
}
// m [position, out, in] to taps; subtrees of units join as a binary counter carries.
extern "C" __global__ void sums(const float* m, float* tree, float* dw, long long unit) {
  const long long t = (long long)blockIdx.x * 256 + threadIdx.x;
  if (t >= in * out) return;
  winograd::transform_tile<6, 3, winograd::transform_sums>(
      [&](int row, int column) { return m[(row * 6 + column) * (in * out) + t]; },
      [&](int row, int column, float v) {
        const long long at = t * 9 + row * 3 + column;
        int level = 0;
        for (long long carry = unit; carry & 1; carry >>= 1, ++level) v = tree[level * (in * out * 9) + at] + v;
        if (unit + 1 < units) {
          tree[level * (in * out * 9) + at] = v;
        } else {
          dw[at] = v;
        }
      });
}
)text";

}  // namespace

Result<Kernel> winograd_forward(const Query& q) { return convolve(q, false); }
Result<Kernel> winograd_grad_input(const Query& q) { return convolve(q, true); }

Result<Kernel> winograd_grad_weight(const Query& q) {
  const Shape &x = q.in(0).shape, &dy = q.in(1).shape;
  EPL_TRY(accepts(q, x, q.out(0).shape));
  EPL_TRY(require(q.units.outer == 1 && q.units.divide(x[0]), "units that are not runs of images"));
  EPL_TRY(require(x[1] > 0 && dy[1] > 0, "no channels"));
  Sizes s{};
  const int64_t units = q.units.count;
  s.images = x[0] / units;
  s.in = x[1];
  s.out = dy[1];
  set_sizes(q, s, x, dy, false);
  const int64_t tiles = s.all_tiles(), weights = s.in * s.out;
  EPL_TRY(require(tiles >= least_unit_tiles, "too few tiles in a unit"));
  const int64_t levels = std::bit_width(static_cast<uint64_t>(units)) - 1;
  Kernel kernel;
  const auto take = [&](int64_t floats) {
    const Argument at = workspace(kernel.workspace_bytes);
    kernel.workspace_bytes += line_aligned(floats * 4);
    return at;
  };
  const Argument of_x = take(positions * s.in * tiles), of_dy = take(positions * s.out * tiles),
                 m = take(positions * weights), tree = take(levels * weights * taps * taps);
  const std::string text =
      program({winograd_file}, cat(operand_types(q.in(0).dtype), s.text(), constant("images", s.images),
                                   constant("units", units), weight_gradient));
  Product p;  // of_dy [position, out, tile] and of_x [position, in, tile] to m [position, out, in]
  p.m = s.out;
  p.n = s.in;
  p.k = tiles;
  p.batch = positions;
  p.b_columns_follow = false;
  p.a = cat("a_data[(batch * ", s.out, " + row) * ", tiles, " + k]");
  p.b = cat("b_data[(batch * ", s.in, " + column) * ", tiles, " + k]");
  p.c = cat("(batch * ", s.out, " + row) * ", s.in, " + column");
  for (int64_t unit = 0; unit < units; ++unit) {
    kernel.launches.push_back(launch_threads(text, "inputs", s.in * tiles, {input(0), of_x, number(unit)}));
    kernel.launches.push_back(launch_threads(text, "gradients", s.out * tiles, {input(1), of_dy, number(unit)}));
    add_product(kernel, p, of_dy, of_x, Argument{}, m);
    kernel.launches.push_back(launch_threads(text, "sums", weights, {m, tree, output(0), number(unit)}));
  }
  return kernel;
}

}  // namespace epl::cuda
