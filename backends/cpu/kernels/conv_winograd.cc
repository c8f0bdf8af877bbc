// The rows of Winograd's convolution: conv and conv_grad_input with 3 x 3 taps and strides of 1. The gradient by the
// input is a convolution of dy with the weights' channels exchanged and the taps flipped.
#include "backends/cpu/kernels/conv_winograd.h"

#include <algorithm>
#include <memory>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels/gemm_tiling.h"
#include "backends/cpu/kernels/narrow_operands.h"
#include "backends/cpu/kernels/rows.h"
#include "core/backend/kernel.h"

namespace epl::cpu {
namespace {

const WinogradLevel& level_of_this_processor() { return *EPL_CPU_CHOOSE(winograd_level); }

constexpr int64_t taps = 3;
constexpr int64_t least_channels = 16;    // fewer do not pay for the transforms
constexpr int64_t least_outputs = 6;      // of a tile, on average: borders of small images leave many of 16 unused
constexpr int64_t cached = 180 << 10;     // floats of a task that stay in the second-level cache
constexpr int64_t least_task_tiles = 32;  // that share one reading of the weights

bool all_are(const Ints& values, int64_t value) {
  return std::ranges::all_of(values, [&](int64_t v) { return v == value; });
}

// `x` and `y` are those of the convolution that is computed: of a gradient dy and dx.
Result<Winograd> winograd_of(const KernelQuery& q, bool gradient) {
  const Shape &x = q.in(0).shape, &w = q.in(1).shape, &y = q.out(0).shape;
  EPL_TRY(require(x.size() == 4 && w[2] == taps && w[3] == taps, "other than 3 x 3 taps"));
  EPL_TRY(require(all_are(q.attributes.ints("strides"), 1) && all_are(q.attributes.ints("dilations"), 1),
                  "strides or dilations other than 1"));
  EPL_TRY(require(q.attributes.integer("groups") == 1, "groups"));
  EPL_TRY(require(!q.splits_keep_bits, "a split of rows would move the tiles, and with them bits"));
  EPL_TRY(require(std::min(w[0], w[1]) >= least_channels, "too few channels to pay for the transforms"));
  Winograd g;
  g.images = x[0];
  g.in = x[1];
  g.out = y[1];
  g.weight_out = gradient ? taps * taps : w[1] * taps * taps;
  g.weight_in = gradient ? w[1] * taps * taps : taps * taps;
  g.flipped = gradient;
  const Ints& pads = q.attributes.ints("pads");
  for (size_t d = 0; d < 2; ++d) {
    g.x[d] = x[d + 2];
    g.y[d] = y[d + 2];
    const int64_t pad = pads.empty() ? 0 : pads[d];
    g.pads[d] = gradient ? taps - 1 - pad : pad;
    g.tiles[d] = ceil_div(g.y[d], winograd_outputs);
  }
  EPL_TRY(require(g.y[0] * g.y[1] >= least_outputs * g.tiles[0] * g.tiles[1], "images too small to fill tiles"));
  return g;
}

// Which tasks there are changes no bit.
void cut_tasks(Winograd& g, const WinogradLevel& level, int threads) {
  g.lanes = level.lanes;
  g.panel = 2 * level.lanes;
  const int64_t in = round_up(g.in, g.lanes), all = g.all_tiles();
  const int64_t of_tile = winograd_positions * (in + round_up(g.out, g.lanes));
  const int64_t most = std::max(least_task_tiles, cached / of_tile);
  g.tile_tasks = std::max<int64_t>(1, ceil_div(all, most));
  if (g.tile_tasks > 1) g.tile_tasks = round_up(g.tile_tasks, threads);
  g.task_tiles = ceil_div(all, g.tile_tasks);
  g.panel_tasks = g.tile_tasks >= threads ? 1 : std::min<int64_t>(threads, g.panels());
  g.task_panels = ceil_div(g.panels(), g.panel_tasks);
  // A cache line more keeps what is read together from the same sets of a cache.
  constexpr int64_t line = 16;
  g.x_tile = in + line;
  g.y_tile = g.task_panels * g.panel + line;
  g.x_position = g.task_tiles * g.x_tile + line;
  g.y_position = g.task_tiles * g.y_tile + line;
  g.own_weights = g.tile_tasks == 1;  // then nobody else reads them
  g.weight_position = g.in * (g.own_weights ? g.panel : round_up(g.out, g.lanes)) + line;
  const int64_t run = std::min(g.tiles[1], g.task_tiles) * winograd_outputs;
  g.stage = winograd_inputs * (run + winograd_inputs - winograd_outputs) * g.lanes;
}

template <bool gradient> Result<Prepared> prepare(const KernelQuery& q) {
  EPL_ASSIGN(Winograd g, winograd_of(q, gradient));
  cut_tasks(g, level_of_this_processor(), q.threads);
  const int64_t floats = g.shared_floats() + q.threads * round_up(g.task_floats(), 16);
  return Prepared{.state = std::make_shared<const Winograd>(g),
                  .workspace_bytes = floats * static_cast<int64_t>(sizeof(float))};
}

void launch(const KernelCall& call) {
  const Winograd& g = *static_cast<const Winograd*>(call.state);
  const WinogradLevel& level = level_of_this_processor();
  float* u = static_cast<float*>(call.workspace);
  float* scratch = u + g.shared_floats();
  const float* bias = call.query.has(2) ? call.in<float>(2) : nullptr;
  if (!g.own_weights)
    call.threads().run(g.weight_tasks(), [&](int64_t task, int) { level.weights(g, call.in<float>(1), task, u); });
  call.threads().run(g.tasks(), [&](int64_t task, int thread) {
    level.tiles(g, call.in<float>(0), call.in<float>(1), u, bias, task, call.out<float>(0),
                scratch + thread * round_up(g.task_floats(), 16));
  });
}

}  // namespace

void add_winograd_row(KernelTable& table, const char* op, bool gradient) {
  const KernelRow row{.op = op,
                      .name = gradient ? "conv_grad_input_winograd" : "conv_winograd",
                      .dtypes = {DType::f32},
                      .prepare = gradient ? prepare<true> : prepare<false>,
                      .launch = launch};
  table.add(row);
  table.add(of_narrow_operands(row));
}

}  // namespace epl::cpu
