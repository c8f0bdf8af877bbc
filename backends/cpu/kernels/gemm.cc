#include "backends/cpu/kernels/gemm.h"

#include <algorithm>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels/gemm_plan.h"
#include "core/base/check.h"

namespace epl::cpu {
namespace {

const GemmLevel& level_of_this_processor() { return *EPL_CPU_CHOOSE(gemm_level); }

// Bounds of what a thread keeps in its caches, in floats.
constexpr int64_t max_packed_a = 40 << 10;   // 160 KiB: most of a small second-level cache
constexpr int64_t max_packed_b = 256 << 10;  // 1 MiB
constexpr int64_t max_shared_a = 256 << 10;  // 1 MiB, from which every thread reads
constexpr int64_t max_partials = 512 << 10;  // 2 MiB
constexpr int64_t max_direct_columns = 256;  // up to which packing A does not pay
// Costs in units of one multiply-add of one vector, for choosing the tiles.
constexpr double gather_cost = 8;     // of a vector that a callback gathers
constexpr double transpose_cost = 5;  // of a vector packed across
constexpr double copy_cost = 3;       // of a vector packed along, or read where it lies
constexpr double fetch_cost = 0.3;    // of a vector that another thread has packed
constexpr double task_cost = 4000;
constexpr double wake_cost = 60000;       // of letting the other threads in
constexpr double pack_wake_cost = 10000;  // while they are awake
constexpr double waiting = 0.1;           // for the last tasks, in tasks

int floor_log2(int64_t value) {
  int log = 0;
  while (value >>= 1) ++log;
  return log;
}

// The time of the whole product if a tile has so many rows and columns: packing A where tiles share it, all rounds of
// tasks, and a part of one that somebody waits for at the end.
double estimate(const GemmProblem& p, const GemmPlan& plan, const GemmLevel& level, int threads) {
  const double rows = static_cast<double>(std::min(plan.tile_rows, p.m)),
               columns = static_cast<double>(std::min(plan.tile_columns, p.n));
  const double k = static_cast<double>(p.k) / level.lanes;
  const double a_cost = p.pack_a ? gather_cost : p.a_col == 1 && !plan.direct_a ? transpose_cost : copy_cost;
  const double b_cost = p.pack_b ? gather_cost : p.b_col == 1 ? copy_cost : transpose_cost;
  const double pack = k * a_cost * rows;
  const double read_a = plan.shared_a ? k * fetch_cost * rows : pack;
  const double task = k * (rows * columns + b_cost * columns) + read_a + task_cost;
  const double rounds = static_cast<double>(ceil_div(plan.tasks(), threads));
  if (threads == 1 || plan.tasks() == 1) return task * rounds;
  return task * (rounds + waiting) + wake_cost + (plan.shared_a ? pack / threads + pack_wake_cost : 0);
}

void set_tiles(const GemmProblem& p, GemmPlan& plan, int64_t rows, int64_t columns) {
  plan.tile_rows = rows;
  plan.tile_columns = columns;
  plan.row_tiles = ceil_div(p.m, rows);
  plan.column_tiles = ceil_div(p.n, columns);
}

void size_scratch(const GemmProblem& p, const GemmLevel& level, int64_t depth, GemmPlan& plan) {
  const int64_t width = plan.panel_vectors * level.lanes, columns = round_up(plan.tile_columns, width);
  const int64_t rows = std::max<int64_t>(level.rows, max_packed_a / depth / level.rows * level.rows);
  plan.block_rows = std::min(plan.tile_rows, rows);
  plan.shared = plan.shared_a ? round_up(p.m * p.k, 16) : 0;
  plan.packed_a = plan.direct_a || plan.shared_a ? 0 : round_up(plan.block_rows * depth, 16);
  plan.packed_b = columns * depth;
  plan.partial_step = plan.tile_rows * columns;
  plan.partials = plan.partial_step * plan.levels;
  plan.edge = round_up((level.rows + 1) * width, 16);
  plan.passing_tree = round_up(plan.passing * level.rows * width, 16);
}

GemmPlan make_plan(const GemmProblem& p, const GemmLevel& level, int threads) {
  GemmPlan plan;
  for (const GemmBatch& batch : p.batch) plan.products *= batch.count;
  if (p.m == 0 || p.n == 0 || plan.products == 0) return plan;
  plan.panel_vectors = p.m <= level.rows ? level.panel_vectors(p.m) : 2;
  plan.direct_b = p.b_col == 1 && !p.pack_b && p.m <= level.rows;
  plan.thin = p.m <= level.thin_rows && !p.pack_a && !p.pack_b && (p.b_col == 1 || p.b_row == 1);
  plan.direct_a = p.a_col == 1 && !p.pack_a && p.m > level.rows && p.n <= max_direct_columns;
  const int levels = floor_log2(p.units);
  if (!plan.thin && p.k > 0)
    plan.passing = std::min(levels, floor_log2(std::max<int64_t>(1, gemm_k_block / (p.k / p.units))));
  plan.levels = levels - plan.passing;
  const int64_t width = plan.panel_vectors * level.lanes;
  const int64_t depth = std::min(gemm_k_block, std::max<int64_t>(p.k, 1));
  const int64_t max_columns = std::max(width, max_packed_b / gemm_k_block / width * width);
  const bool may_share = threads > 1 && plan.products == 1 && !plan.direct_a && !plan.thin && p.m * p.k <= max_shared_a;

  GemmPlan best;
  double best_time = 0;
  const auto consider = [&] {
    const double time = estimate(p, plan, level, threads);
    if (best_time != 0 && time >= best_time) return;
    best_time = time;
    best = plan;
  };
  // Tiles as equal as panels allow; finer cuts cost packing, coarser ones leave threads idle.
  for (int64_t row_cuts = 1; row_cuts <= 4 * threads || row_cuts == 1; row_cuts *= 2) {
    const int64_t rows = std::min(round_up(ceil_div(p.m, row_cuts), level.rows), round_up(p.m, level.rows));
    for (int64_t column_cuts = 1;; column_cuts += std::max<int64_t>(1, column_cuts / 4)) {
      const int64_t columns = round_up(ceil_div(p.n, column_cuts), width);
      if (columns > max_columns) continue;
      if (plan.levels && rows * columns * plan.levels > max_partials && columns > width) continue;
      set_tiles(p, plan, rows, columns);
      consider();
      plan.shared_a = may_share && plan.row_tiles == 1 && plan.column_tiles > 1;
      if (plan.shared_a) consider();
      plan.shared_a = false;
      if (columns == width || plan.tasks() > 8 * threads + plan.products * ceil_div(p.n, max_columns)) break;
    }
    if (rows <= level.rows) break;
  }
  size_scratch(p, level, depth, best);
  return best;
}

GemmTile tile_of(const GemmProblem& p, const GemmPlan& plan, const GemmArguments& arguments, int64_t task) {
  GemmTile tile;
  tile.at = arguments;
  // Tiles of one product follow one another, those that share columns first: they find B in the shared cache.
  tile.row = task % plan.row_tiles * plan.tile_rows;
  task /= plan.row_tiles;
  tile.column = task % plan.column_tiles * plan.tile_columns;
  tile.product = task / plan.column_tiles;
  tile.rows = std::min(plan.tile_rows, p.m - tile.row);
  tile.columns = std::min(plan.tile_columns, p.n - tile.column);
  int64_t rest = tile.product;
  for (int i = 2; i >= 0; --i) {
    const GemmBatch& batch = p.batch[i];
    const int64_t at = rest % batch.count;
    rest /= batch.count;
    if (tile.at.a) tile.at.a += at * batch.a;
    if (tile.at.b) tile.at.b += at * batch.b;
    if (tile.at.bias) tile.at.bias += at * batch.bias;
    tile.at.c += at * batch.c;
  }
  return tile;
}

}  // namespace

int64_t gemm_workspace_bytes(const GemmProblem& problem, int threads) {
  int64_t most = 0;
  // A smaller pool may choose larger tiles.
  for (int t = 1; t <= threads; ++t) {
    const GemmPlan plan = make_plan(problem, level_of_this_processor(), t);
    most = std::max(most, plan.shared + plan.scratch() * std::min<int64_t>(t, plan.tasks()));
  }
  return most * static_cast<int64_t>(sizeof(float));
}

void gemm(const GemmProblem& problem, const GemmArguments& arguments, void* workspace, ThreadPool& pool) {
  EPL_CHECK(problem.units >= 1 && (problem.units & (problem.units - 1)) == 0 && problem.k % problem.units == 0, "k of ",
            problem.k, " in ", problem.units, " units");
  const GemmLevel& level = level_of_this_processor();
  const GemmPlan plan = make_plan(problem, level, pool.size());
  if (plan.tasks() == 0) return;
  float* shared = static_cast<float*>(workspace);
  float* scratch = shared + plan.shared;
  const bool few = plan.tasks() <= pool.size();  // then each task has scratch of its own
  if (plan.shared_a) {
    GemmTile whole;
    whole.at = arguments;
    whole.rows = problem.m;
    pool.run(level.pack_tasks(problem, plan),
             [&](int64_t task, int) { level.pack(problem, plan, whole, task, shared); });
  }
  pool.run(plan.tasks(), [&](int64_t task, int thread) {
    float* own = scratch + (few ? task : thread) * plan.scratch();
    level.run(problem, plan, tile_of(problem, plan, arguments, task), shared, own);
  });
}

}  // namespace epl::cpu
