// The row of Winograd's gradient by the weights.
#include "backends/cpu/kernels/conv_winograd_weight.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels/gemm_tiling.h"
#include "backends/cpu/kernels/narrow_operands.h"
#include "backends/cpu/kernels/rows.h"
#include "core/backend/kernel.h"

namespace epl::cpu {
namespace {

const WinogradGradientLevel& level_of_this_processor() { return *EPL_CPU_CHOOSE(winograd_gradient_level); }

constexpr int64_t taps = 3;
constexpr int64_t least_unit_tiles = 16;  // over fewer, the products' ends take longer than the products
constexpr int64_t line = 16;              // floats; see cut_tasks of conv_winograd.cc

bool all_are(const Ints& values, int64_t value) {
  return std::ranges::all_of(values, [&](int64_t v) { return v == value; });
}

// Ranks may each have some of the weights' channels, so that these decide nothing.
Result<Prepared> prepare(const KernelQuery& q) {
  const Shape &x = q.in(0).shape, &dy = q.in(1).shape, &w = q.out(0).shape;
  EPL_TRY(require(x.size() == 4 && w[2] == taps && w[3] == taps, "other than 3 x 3 taps"));
  EPL_TRY(require(all_are(q.attributes.ints("strides"), 1) && all_are(q.attributes.ints("dilations"), 1),
                  "strides or dilations other than 1"));
  EPL_TRY(require(q.attributes.integer("groups") == 1, "groups"));
  EPL_TRY(require(!q.splits_keep_bits, "a split of rows would move the tiles, and with them bits"));
  EPL_TRY(require(q.units.outer == 1 && q.units.divide(x[0]), "units that are not runs of images"));
  EPL_TRY(require(x[1] > 0 && dy[1] > 0, "no channels"));
  WinogradGradient g;
  g.units = q.units.count;
  g.images = x[0] / g.units;
  g.in = x[1];
  g.out = dy[1];
  const Ints& pads = q.attributes.ints("pads");
  for (size_t d = 0; d < 2; ++d) {
    g.x[d] = x[d + 2];
    g.y[d] = dy[d + 2];
    g.pads[d] = pads.empty() ? 0 : pads[d];
    g.tiles[d] = ceil_div(g.y[d], winograd_outputs);
  }
  EPL_TRY(require(g.unit_tiles() >= least_unit_tiles, "too few tiles in a unit"));
  g.lanes = level_of_this_processor().lanes;
  g.panel = 2 * g.lanes;
  g.task_panels = std::min<int64_t>(ceil_div(g.out, g.panel), 64 / g.panel);
  g.x_position = round_up(g.in, g.lanes) * g.unit_tiles() + line;
  g.y_position = round_up(g.out, g.lanes) * g.unit_tiles() + line;
  const int64_t block = g.lanes * taps * taps * g.lanes, columns = g.task_panels * g.panel;
  g.scratch = std::max(winograd_positions * (g.lanes * columns + g.lanes) + block,
                       winograd_inputs * (g.tiles[1] + 1) * winograd_outputs * g.lanes);
  g.level = g.in_blocks() * g.out_blocks() * block;
  const int64_t levels = std::bit_width(static_cast<uint64_t>(g.units)) - 1;
  const int64_t floats = winograd_positions * (g.x_position + g.y_position) + levels * g.level + q.threads * g.scratch;
  return Prepared{.state = std::make_shared<const WinogradGradient>(g),
                  .workspace_bytes = floats * static_cast<int64_t>(sizeof(float))};
}

void launch(const KernelCall& call) {
  const WinogradGradient& g = *static_cast<const WinogradGradient*>(call.state);
  const WinogradGradientLevel& level = level_of_this_processor();
  float* of_x = static_cast<float*>(call.workspace);
  float* of_dy = of_x + winograd_positions * g.x_position;
  float* scratch = of_dy + winograd_positions * g.y_position;
  float* tree = scratch + call.query.threads * g.scratch;
  for (int64_t unit = 0; unit < g.units; ++unit) {
    call.threads().run(g.transforms(), [&](int64_t task, int thread) {
      level.transform(g, call.in<float>(0), call.in<float>(1), unit, task, of_x, of_dy, scratch + thread * g.scratch);
    });
    call.threads().run(g.products(), [&](int64_t task, int thread) {
      level.multiply(g, of_x, of_dy, unit, task, tree, call.out<float>(0), scratch + thread * g.scratch);
    });
  }
}

}  // namespace

void add_winograd_weight_row(KernelTable& table) {
  const KernelRow row{.op = "conv_grad_weight",
                      .name = "conv_grad_weight_winograd",
                      .dtypes = {DType::f32},
                      .prepare = prepare,
                      .launch = launch};
  table.add(row);
  table.add(of_narrow_operands(row));
}

}  // namespace epl::cpu
