// One tile of C, from packing to the last store. Compiled once per level of processor, and for pairs of bf16.
//
// All of k is done for a tile before the next one begins. For every pass over k, A is packed by blocks of rows that
// stay in the second-level cache, or lies packed completely already, and the micro-kernel runs panel of B by panel of
// B; a panel whose rows are contiguous is packed by the first micro-kernel that reads it. Between passes the sum of the
// current unit waits in C itself, and finished subtrees of units in scratch.
#include "backends/cpu/kernels/gemm_micro.simd.h"
#include "backends/cpu/kernels/gemm_pack.simd.h"
#include "backends/cpu/kernels/gemm_thin.simd.h"
#include "backends/cpu/kernels/gemm_tiling.h"

namespace epl::cpu::EPL_SIMD {
namespace {

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Rows are cut into panels whose heights differ by one at most, so that no panel is too thin to keep the processor
// busy.
struct RowPanels {
  int64_t count, base, extra;
  explicit RowPanels(int64_t rows)
      : count((rows + micro_rows - 1) / micro_rows), base(rows / count), extra(rows % count) {}
  int64_t start(int64_t panel) const { return panel * base + least(panel, extra); }
  int64_t height(int64_t panel) const { return base + (panel < extra); }
  int64_t end(int64_t panel) const { return start(panel) + height(panel); }
};

// What one pass over the tile adds: some blocks of a long unit, or some full short units; a chain each.
struct Pass {
  int64_t k, length;
  int64_t depth;        // of a chain; the last may be shorter
  int64_t unit, units;  // the first unit, and how many
  bool first, last;     // in its unit
  int64_t k_end() const { return k + length; }
};

int64_t passes_of_unit(int64_t length, const GemmTiling& tiling) { return (length + tiling.pass - 1) / tiling.pass; }

int64_t pass_count(const GemmProblem& p, const GemmTiling& tiling) {
  const int64_t length = p.k / p.units;
  return length > k_block(p) ? p.units * passes_of_unit(length, tiling) : p.units >> tiling.passing;
}

Pass pass_at(const GemmProblem& p, const GemmTiling& tiling, int64_t i) {
  const int64_t unit_length = p.k / p.units;
  if (unit_length > k_block(p)) {
    const int64_t passes = passes_of_unit(unit_length, tiling), unit = i / passes, done = i % passes * tiling.pass;
    const int64_t length = least(tiling.pass, unit_length - done);
    return {unit * unit_length + done,   length, least(length, k_block(p)), unit, 1, done == 0,
            done + length == unit_length};
  }
  const int64_t units = int64_t{1} << tiling.passing, unit = i * units;
  return {unit * unit_length, unit_length * units, unit_length, unit, units, true, true};
}

// `pack_rows` where the rows of A are contiguous: all panels of a k before the next, so that memory is read in order.
void pack_rows_along(const float* from, int64_t k_step, const Pass& pass, const RowPanels& panels, int64_t first,
                     int64_t last, float* to) {
  const int64_t rows = panels.end(last - 1) - panels.start(first);
  for (int64_t k = 0; k < pass.length; ++k, from += k_step) {
    for (int64_t row = 0; row < rows; row += 16) __builtin_prefetch(from + 16 * k_step + row);
    const float* row = from;
    float* panel = to;
    for (int64_t i = first; i < last; ++i) {
      const int64_t height = panels.height(i);
      copy_run(row, panel + k * height, height);
      row += height;
      panel += height * pass.length;
    }
  }
}

// Packs the panels [first, last) of a tile's rows of A, one behind the other.
void pack_rows(const GemmProblem& p, const GemmTile& tile, const Pass& pass, const RowPanels& panels, int64_t first,
               int64_t last, float* to) {
  if (!p.pack_a && p.a_row == 1)
    return pack_rows_along(tile.at.a + tile.row + panels.start(first) + pass.k * p.a_col, p.a_col, pass, panels, first,
                           last, to);
  for (int64_t i = first; i < last; ++i) {
    const int64_t row = tile.row + panels.start(i), height = panels.height(i);
    for (int64_t done = 0; done < pass.length; done += k_block(p)) {
      const int64_t k = pass.k + done, depth = least(k_block(p), pass.length - done);
      if (p.pack_a) {
        p.pack_a(tile.at.a_context, tile.product, row, height, k, depth, to, height);
      } else {
        pack_panel(tile.at.a + row * p.a_row + k * p.a_col, p.a_row, p.a_col, height, depth, to, height);
      }
      to += height * depth;
    }
  }
}

// Where tiles share A, its passes follow one another, each the panels of all rows; a task packs some panels of a pass.
constexpr int64_t task_panels = 4;
int64_t tasks_of_pass(const RowPanels& panels) { return (panels.count + task_panels - 1) / task_panels; }
float* shared_pass(const GemmProblem& p, const Pass& pass, float* shared) { return shared + p.m * pass.k; }

int64_t pack_tasks(const GemmProblem& p, const GemmTiling& tiling) {
  return pass_count(p, tiling) * tasks_of_pass(RowPanels(p.m));
}

void pack_shared(const GemmProblem& p, const GemmTiling& tiling, const GemmTile& full, int64_t task, float* shared) {
  const RowPanels panels(p.m);
  const Pass pass = pass_at(p, tiling, task / tasks_of_pass(panels));
  const int64_t first = task % tasks_of_pass(panels) * task_panels, last = least(first + task_panels, panels.count);
  float* to = shared_pass(p, pass, shared) + panels.start(first) * pass.length;
  pack_rows(p, full, pass, panels, first, last, to);
}

class Tile {
 public:
  Tile(const GemmProblem& problem, const GemmTiling& tiling, const GemmTile& tile, float* shared, float* scratch)
      : p_(problem), tiling_(tiling), tile_(tile), panels_(tile.rows), width_(tiling.panel_vectors * lanes) {
    shared_a_ = shared;
    packed_b_ = scratch;
    packed_a_ = packed_b_ + tiling.packed_b;
    partials_ = packed_a_ + tiling.packed_a;
    edge_ = partials_ + tiling.partials;
    passing_ = edge_ + tiling.edge;
  }

  void run() {
    for (int64_t i = 0; i < pass_count(p_, tiling_); ++i) add_pass(pass_at(p_, tiling_, i));
  }

 private:
  // The width of the panel of B that starts at a column of the tile.
  int64_t panel_width(int64_t column) const {
    const int64_t left = tile_.columns - column;
    if (left >= width_) return width_;
    return left > lanes ? 2 * lanes : lanes;
  }
  // Whether a panel of B is read where it lies. The last, narrow panel cannot be, because no zeros follow it.
  bool in_place(int64_t column, int64_t width) const {
    return p_.b_col == 1 && !p_.pack_b && width == width_ && column + width <= tile_.columns;
  }

  void add_pass(const Pass& pass) {
    if constexpr (!elements_are_pairs) {  // which packs bring: nothing streams by
      if (tiling_.thin) return add_thin_pass(pass);
    }
    const int64_t step = tiling_.block_rows / micro_rows;
    for (int64_t panel = 0; panel < panels_.count; panel += step) {
      const int64_t end = least(panel + step, panels_.count);
      if (!tiling_.direct_a && !tiling_.shared_a) pack_rows(p_, tile_, pass, panels_, panel, end, packed_a_);
      for (int64_t column = 0; column < tile_.columns;) {
        const int64_t width = panel_width(column);
        BMode b = BMode::packed;
        if (in_place(column, width)) {
          if (tiling_.direct_b)
            b = BMode::direct;
          else if (panel == 0)
            b = BMode::packing;
        } else if (panel == 0) {
          pack_b(pass, column, width);
        }
        add_column(pass, b, panel, end, column, width);
        column += width;
      }
    }
  }

  void add_thin_pass(const Pass& pass) {
    ThinCall call{pass.depth, tile_.columns, nullptr, p_.a_row, p_.a_col, nullptr, p_.b_row, p_.b_col, packed_b_};
    call.a = tile_.at.a + tile_.row * p_.a_row + pass.k * p_.a_col;
    call.b = tile_.at.b + tile_.column * p_.b_col + pass.k * p_.b_row;
    thin_chains(tile_.rows, call);
    for (int64_t row = 0; row < tile_.rows; ++row) {
      float* sums = call.sums + row * tile_.columns;
      if (p_.c_run) {
        for (int64_t i = 0; i < tile_.columns; ++i) finish_thin(pass, row, i, 1, sums + i);
      } else {
        finish_thin(pass, row, 0, tile_.columns, sums);
      }
    }
  }

  // What `finish` of the micro-kernel does, for neighbouring columns of a row.
  void finish_thin(const Pass& pass, int64_t row, int64_t column, int64_t count, float* sums) {
    float* c = c_at(tile_.row + row, tile_.column + column);
    float* to = c;
    if (!pass.first) add_floats(c, sums, count);
    if (pass.last) {
      float* tree = partials_ + row * tile_.columns + column;
      const int64_t carries = __builtin_ctzll(~static_cast<uint64_t>(pass.unit));
      for (int64_t t = 0; t < carries; ++t) add_floats(tree + t * tiling_.partial_step, sums, count);
      if (pass.unit + 1 < p_.units) {
        to = tree + carries * tiling_.partial_step;
      } else if (p_.bias == GemmBias::columns) {
        add_floats(tile_.at.bias + tile_.column + column, sums, count);
      } else if (p_.bias == GemmBias::rows) {
        for (int64_t i = 0; i < count; ++i) sums[i] += tile_.at.bias[tile_.row + row];
      }
    }
    for (int64_t i = 0; i < count; ++i) to[i] = sums[i];
  }
  static void add_floats(const float* left, float* sums, int64_t count) {
    for (int64_t i = 0; i < count; ++i) sums[i] = left[i] + sums[i];
  }

  void pack_b(const Pass& pass, int64_t column, int64_t width) {
    const int64_t count = least(width, tile_.columns - column), at = tile_.column + column;
    float* to = packed_b_ + column * pass.length;
    for (int64_t done = 0; done < pass.length; done += k_block(p_)) {
      const int64_t k = pass.k + done, depth = least(k_block(p_), pass.length - done);
      if (p_.pack_b) {
        p_.pack_b(tile_.at.b_context, tile_.product, at, count, k, depth, to + done * width, width);
      } else {
        pack_panel(tile_.at.b + at * p_.b_col + k * p_.b_row, p_.b_col, p_.b_row, count, depth, to + done * width,
                   width);
      }
    }
    if (count == width) return;
    for (int64_t k = 0; k < pass.length; ++k)
      for (int64_t i = count; i < width; ++i) to[k * width + i] = 0;
  }

  float* c_at(int64_t row, int64_t column) const {
    if (p_.c_run) column = column / p_.c_run * p_.c_jump + column % p_.c_run;
    return tile_.at.c + row * p_.c_row + column;
  }

  // The panels [first, last) of A times one panel of B. What they share is computed once: with a short k that takes as
  // long as the micro-kernel.
  void add_column(const Pass& pass, BMode b_mode, int64_t first, int64_t last, int64_t column, int64_t width) {
    const int64_t c_column = tile_.column + column, count = least(width, tile_.columns - column);
    const bool full = count == width && (!p_.c_run || c_column % p_.c_run + width <= p_.c_run);
    MicroCall call;
    call.length = pass.length;
    call.depth = pass.depth;
    call.units = pass.units;
    call.a_step = tiling_.direct_a ? p_.a_row : 0;
    const float* packed_a = tiling_.shared_a ? shared_pass(p_, pass, shared_a_) : packed_a_;
    const int64_t packed_row = tiling_.shared_a ? 0 : panels_.start(first);  // that it begins with
    call.packed_b = packed_b_ + column * pass.length;
    if (b_mode != BMode::packed) call.b = tile_.at.b + pass.k * p_.b_row + c_column;
    call.b_step = p_.b_row;
    MicroEnd& end = call.end;
    end.unit = pass.unit;
    end.unfinished = !pass.last;
    end.final = pass.last && pass.k_end() == p_.k;
    end.running = !pass.first;
    end.c_step = full ? p_.c_row : width;
    end.passing = tiling_.passing;
    end.passing_tree = passing_;
    end.tree_step = tiling_.partial_step;
    if (end.final && p_.bias == GemmBias::columns) end.bias_columns = column_bias(c_column, count, width);
    if (!full) locate_edge(c_column, count);

    // Halves of a tile read their operands twice: in longer units that costs more than the stores that it saves.
    const bool pairs = pass.units > 1 && pass.depth <= 16;
    const AMode a_mode = tiling_.direct_a ? AMode::rows : AMode::packed;
    const int vectors = static_cast<int>(width / lanes);
    int64_t height = 0;
    Micro kernel = nullptr;
    for (int64_t panel = first; panel < last; ++panel) {
      const int64_t row = panels_.start(panel), c_row = tile_.row + row;
      if (panels_.height(panel) != height || panel <= first + 1) {
        height = panels_.height(panel);
        if (panel > first && b_mode == BMode::packing) b_mode = BMode::packed;  // by the first of them
        kernel = micro_kernel(a_mode, b_mode, static_cast<int>(height), vectors, pairs);
      }
      call.a = tiling_.direct_a ? tile_.at.a + c_row * p_.a_row + pass.k : packed_a + (row - packed_row) * pass.length;
      // A tile of partial sums is contiguous, in the order in which the tiles come.
      end.tree = partials_ + column * tile_.rows + row * width;
      if (end.final && p_.bias == GemmBias::rows) end.bias_rows = tile_.at.bias + c_row;
      if (full) {
        end.c = c_at(c_row, c_column);
        kernel(call);
        continue;
      }
      end.c = edge_;
      if (end.running) load_edge(c_row, height, count, width);
      kernel(call);
      if (end.unfinished || end.final) store_edge(c_row, height, width);
    }
  }

  // Of a panel; behind the last column of C there may be no more of the bias.
  const float* column_bias(int64_t column, int64_t count, int64_t width) {
    if (count == width) return tile_.at.bias + column;
    float* padded = edge_ + micro_rows * width;
    for (int64_t i = 0; i < width; ++i) padded[i] = i < count ? tile_.at.bias[column + i] : 0;
    return padded;
  }

  // A tile that C has no room for, or that crosses runs of columns, is computed in scratch.
  void locate_edge(int64_t column, int64_t count) {
    edge_runs_ = 0;
    int64_t at = c_at(0, column) - tile_.at.c, left = p_.c_run ? p_.c_run - column % p_.c_run : count;
    for (int64_t done = 0; done < count;) {
      const int64_t some = least(left, count - done);
      edge_run_[edge_runs_++] = {done, at, some};
      done += some;
      at += some + p_.c_jump - p_.c_run;  // the next run begins
      left = p_.c_run;
    }
  }
  void load_edge(int64_t row, int64_t height, int64_t count, int64_t width) {
    for (int64_t r = 0; r < height; ++r) {
      float* to = edge_ + r * width;
      const float* from = tile_.at.c + (row + r) * p_.c_row;
      for (int64_t i = 0; i < edge_runs_; ++i)
        copy_run(from + edge_run_[i].at, to + edge_run_[i].column, edge_run_[i].count);
      for (int64_t i = count; i < width; ++i) to[i] = 0;
    }
  }
  void store_edge(int64_t row, int64_t height, int64_t width) {
    for (int64_t r = 0; r < height; ++r) {
      const float* from = edge_ + r * width;
      float* to = tile_.at.c + (row + r) * p_.c_row;
      for (int64_t i = 0; i < edge_runs_; ++i)
        copy_run(from + edge_run_[i].column, to + edge_run_[i].at, edge_run_[i].count);
    }
  }

  const GemmProblem& p_;
  const GemmTiling& tiling_;
  const GemmTile& tile_;
  RowPanels panels_;
  int64_t width_;  // of a full panel of B
  float *shared_a_, *packed_b_, *packed_a_, *partials_, *edge_, *passing_;
  struct EdgeRun {
    int64_t column, at, count;  // of the panel; behind the first element of a row of C
  };
  EdgeRun edge_run_[8 * lanes];
  int64_t edge_runs_ = 0;
};

void run_tile(const GemmProblem& problem, const GemmTiling& tiling, const GemmTile& tile, float* shared,
              float* scratch) {
  Tile(problem, tiling, tile, shared, scratch).run();
}

int thin_panel_vectors(int64_t rows) {
  if (rows > micro_rows) return 2;
  const int wide = wide_vectors(static_cast<int>(rows));
  return wide < 2 ? 2 : wide;
}

}  // namespace

extern const GemmLevel gemm_level;
const GemmLevel gemm_level = {lanes, micro_rows, thin_rows, thin_panel_vectors, pack_tasks, pack_shared, run_tile};

}  // namespace epl::cpu::EPL_SIMD
