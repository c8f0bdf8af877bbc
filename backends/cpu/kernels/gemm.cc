#include "backends/cpu/kernels/gemm.h"

#include <xmmintrin.h>

#include <algorithm>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels/gemm_tiling.h"
#include "core/base/check.h"

namespace epl::cpu {
namespace {

const GemmLevel& level_of(const GemmProblem& p) { return p.pairs ? v4_bf16::gemm_level : *EPL_CPU_CHOOSE(gemm_level); }

// While it lives, this thread reads and writes subnormal numbers as zero, if `on`.
class Flush {
 public:
  explicit Flush(bool on) : before_(_mm_getcsr()) {
    constexpr unsigned of_operands = 0x40, of_results = 0x8000;
    if (on) _mm_setcsr(before_ | of_operands | of_results);
  }
  ~Flush() { _mm_setcsr(before_); }
  Flush(const Flush&) = delete;
  Flush& operator=(const Flush&) = delete;

 private:
  unsigned before_;
};

// Bounds of what a thread keeps in its caches, in floats.
constexpr int64_t max_packed_a = 40 << 10;   // 160 KiB: most of a small second-level cache
constexpr int64_t transposed_rows = 98;      // of an A whose columns lie apart, at a time: shorter runs are read slowly
constexpr int64_t max_packed_b = 256 << 10;  // 1 MiB
constexpr int64_t max_shared_a = 256 << 10;  // 1 MiB, from which every thread reads
constexpr int64_t max_partials = 512 << 10;  // 2 MiB
// k of a pass. Where C is larger than the caches, long passes touch it less often; where it is not, a panel of B that
// stays in the first-level cache is worth more.
constexpr int64_t max_pass = 1024;
constexpr int64_t cached_c = 512 << 10;      // 2 MiB
constexpr int64_t subtree_columns = 512;     // of a tile beside which subtrees wait, at least
constexpr int64_t max_direct_columns = 256;  // up to which packing A does not pay
// Costs in units of one multiply-add of one vector, for choosing the tiles.
constexpr double gather_cost = 8;     // of a vector that a callback gathers
constexpr double transpose_cost = 5;  // of a vector packed across
constexpr double copy_cost = 3;       // of a vector packed along, or read where it lies
constexpr double fetch_cost = 0.3;    // of a vector that another thread has packed
constexpr double task_cost = 4000;
constexpr double wake_cost = 60000;       // of waking the other threads
constexpr double pack_wake_cost = 10000;  // while they are awake
constexpr double waiting = 0.1;           // for the last tasks, in tasks

int floor_log2(int64_t value) {
  int log = 0;
  while (value >>= 1) ++log;
  return log;
}

// The time of the product if a tile has so many rows and columns: packing A where tiles share it, all rounds of tasks,
// and the wait for the last tasks.
double estimate(const GemmProblem& p, const GemmTiling& tiling, const GemmLevel& level, int threads) {
  const double rows = static_cast<double>(std::min(tiling.tile_rows, p.m)),
               columns = static_cast<double>(std::min(tiling.tile_columns, p.n));
  const double k = static_cast<double>(p.k) / level.lanes;
  const bool gather_a = p.pack_a && !p.strided_packs, gather_b = p.pack_b && !p.strided_packs;
  const double a_cost = gather_a ? gather_cost : p.a_col == 1 && !tiling.direct_a ? transpose_cost : copy_cost;
  const double b_cost = gather_b ? gather_cost : p.b_col == 1 ? copy_cost : transpose_cost;
  const double pack = k * a_cost * rows;
  const double read_a = tiling.shared_a ? k * fetch_cost * rows : pack;
  const double task = k * (rows * columns + b_cost * columns) + read_a + task_cost;
  const double rounds = static_cast<double>(ceil_div(tiling.tasks(), threads));
  if (threads == 1 || tiling.tasks() == 1) return task * rounds;
  return task * (rounds + waiting) + wake_cost + (tiling.shared_a ? pack / threads + pack_wake_cost : 0);
}

void set_tiles(const GemmProblem& p, GemmTiling& tiling, int64_t rows, int64_t columns) {
  tiling.tile_rows = rows;
  tiling.tile_columns = columns;
  tiling.row_tiles = ceil_div(p.m, rows);
  tiling.column_tiles = ceil_div(p.n, columns);
}

// Equal passes of whole blocks, or as many short units as are a power of two.
void set_pass(const GemmProblem& p, GemmTiling& tiling) {
  const int64_t unit = p.k / p.units, levels = floor_log2(p.units), block = k_block(p);
  const int64_t longest = p.m * p.n > cached_c ? max_pass : gemm_k_block;
  if (tiling.thin || unit == 0) {
    tiling.pass = block;
  } else if (unit > block) {
    const int64_t passes = ceil_div(unit, longest);
    tiling.pass = ceil_div(ceil_div(unit, block), passes) * block;
  } else {
    tiling.passing = static_cast<int>(std::min<int64_t>(levels, floor_log2(longest / unit)));
    tiling.pass = unit << tiling.passing;
  }
  tiling.levels = static_cast<int>(levels) - tiling.passing;
}

void size_scratch(const GemmProblem& p, const GemmLevel& level, GemmTiling& tiling) {
  const int64_t width = tiling.panel_vectors * level.lanes, columns = round_up(tiling.tile_columns, width);
  const int64_t depth = std::max<int64_t>(std::min(tiling.pass, p.k), 1);
  const bool transposed = p.a_row == 1 && p.a_col != 1 && (!p.pack_a || p.strided_packs);
  const int64_t least = round_up(transposed ? transposed_rows : level.rows, level.rows);
  const int64_t rows = std::max(least, max_packed_a / depth / level.rows * level.rows);
  tiling.block_rows = std::min(tiling.tile_rows, rows);
  tiling.shared = tiling.shared_a ? round_up(p.m * p.k, 16) : 0;
  tiling.packed_a = tiling.direct_a || tiling.shared_a ? 0 : round_up(tiling.block_rows * depth, 16);
  tiling.packed_b = columns * std::max(depth, tiling.thin ? p.m : 0);  // where a thin tile has its sums
  tiling.partial_step = tiling.tile_rows * columns;
  tiling.partials = tiling.partial_step * tiling.levels;
  tiling.edge = round_up((level.rows + 1) * width, 16);
  const int passing = std::max(tiling.passing, tiling.pass > k_block(p) ? 1 : 0);
  tiling.passing_tree = round_up(passing * level.rows * width, 16);
}

GemmTiling make_tiling(const GemmProblem& p, const GemmLevel& level, int threads) {
  GemmTiling tiling;
  for (const GemmBatch& batch : p.batch) tiling.products *= batch.count;
  if (p.m == 0 || p.n == 0 || tiling.products == 0) return tiling;
  tiling.panel_vectors = p.m <= level.rows ? level.panel_vectors(p.m) : 2;
  tiling.direct_b = p.b_col == 1 && !p.pack_b && p.m <= level.rows;
  tiling.thin = p.m <= level.thin_rows && !p.pack_a && !p.pack_b && (p.b_col == 1 || p.b_row == 1);
  tiling.direct_a = p.a_col == 1 && !p.pack_a && p.m > level.rows && p.n <= max_direct_columns;
  set_pass(p, tiling);
  const int64_t width = tiling.panel_vectors * level.lanes;
  const int64_t max_columns = std::max(width, max_packed_b / std::max(tiling.pass, gemm_k_block) / width * width);
  const bool may_share =
      threads > 1 && tiling.products == 1 && !tiling.direct_a && !tiling.thin && p.m * p.k <= max_shared_a;

  GemmTiling best;
  double best_time = 0;
  const auto consider = [&] {
    const double time = estimate(p, tiling, level, threads);
    if (best_time != 0 && time >= best_time) return;
    best_time = time;
    best = tiling;
  };
  // Tiles as equal as panels allow; finer cuts cost packing, coarser ones leave threads idle.
  // Subtrees of units that wait take as much room as the tile, so that it must be smaller.
  const int64_t most_rows = tiling.levels ? max_partials / (tiling.levels * subtree_columns) : p.m;
  for (int64_t row_cuts = 1; row_cuts <= 4 * threads || ceil_div(p.m, row_cuts / 2) > most_rows; row_cuts *= 2) {
    const int64_t rows = std::min(round_up(ceil_div(p.m, row_cuts), level.rows), round_up(p.m, level.rows));
    for (int64_t column_cuts = 1;; column_cuts += std::max<int64_t>(1, column_cuts / 4)) {
      const int64_t columns = round_up(ceil_div(p.n, column_cuts), width);
      if (columns > max_columns) continue;
      if (tiling.levels && rows * columns * tiling.levels > max_partials && columns > width) continue;
      set_tiles(p, tiling, rows, columns);
      consider();
      tiling.shared_a = may_share && tiling.row_tiles == 1 && tiling.column_tiles > 1;
      if (tiling.shared_a) consider();
      tiling.shared_a = false;
      if (columns == width || tiling.tasks() > 8 * threads + tiling.products * ceil_div(p.n, max_columns)) break;
    }
    if (rows <= level.rows) break;
  }
  size_scratch(p, level, best);
  return best;
}

GemmTile tile_of(const GemmProblem& p, const GemmTiling& tiling, const GemmArguments& arguments, int64_t task) {
  GemmTile tile;
  tile.at = arguments;
  // Tiles of one product follow one another, those that share columns first: they find B in the shared cache.
  tile.row = task % tiling.row_tiles * tiling.tile_rows;
  task /= tiling.row_tiles;
  tile.column = task % tiling.column_tiles * tiling.tile_columns;
  tile.product = task / tiling.column_tiles;
  tile.rows = std::min(tiling.tile_rows, p.m - tile.row);
  tile.columns = std::min(tiling.tile_columns, p.n - tile.column);
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
  int64_t floats = 0;
  // A smaller pool may choose larger tiles.
  for (int t = 1; t <= threads; ++t) {
    const GemmTiling tiling = make_tiling(problem, level_of(problem), t);
    floats = std::max(floats, tiling.shared + tiling.scratch() * std::min<int64_t>(t, tiling.tasks()));
  }
  return floats * static_cast<int64_t>(sizeof(float));
}

void gemm(const GemmProblem& problem, const GemmArguments& arguments, void* workspace, ThreadPool& pool) {
  EPL_CHECK(problem.units >= 1 && (problem.units & (problem.units - 1)) == 0 && problem.k % problem.units == 0, "k of ",
            problem.k, " in ", problem.units, " units");
  const GemmLevel& level = level_of(problem);
  const GemmTiling tiling = make_tiling(problem, level, pool.size());
  if (tiling.tasks() == 0) return;
  float* shared = static_cast<float*>(workspace);
  float* scratch = shared + tiling.shared;
  const bool few = tiling.tasks() <= pool.size();  // then each task has scratch of its own
  if (tiling.shared_a) {
    GemmTile full;
    full.at = arguments;
    full.rows = problem.m;
    pool.run(level.pack_tasks(problem, tiling),
             [&](int64_t task, int) { level.pack(problem, tiling, full, task, shared); });
  }
  pool.run(tiling.tasks(), [&](int64_t task, int thread) {
    float* own = scratch + (few ? task : thread) * tiling.scratch();
    const Flush flush(problem.flush);
    level.run(problem, tiling, tile_of(problem, tiling, arguments, task), shared, own);
  });
}

}  // namespace epl::cpu
