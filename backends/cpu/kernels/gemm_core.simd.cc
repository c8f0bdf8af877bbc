// One tile of C, from packing to the last store. Compiled once per level of processor.
//
// All of k is done for a tile before the next one begins: for every block of k, B is packed (or read in place), then A by
// blocks of rows that stay in the second-level cache, then the micro-kernel runs panel of B by panel of B. The sum of the
// unit at hand grows in C itself; finished subtrees of units wait in scratch.
#include "backends/cpu/kernels/gemm_micro.simd.h"
#include "backends/cpu/kernels/gemm_pack.simd.h"
#include "backends/cpu/kernels/gemm_plan.h"

namespace epl::cpu::EPL_SIMD {
namespace {

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Rows are cut into panels whose heights differ by one at most, so that no panel is too thin to keep the processor busy.
struct RowPanels {
  int64_t count, base, extra;
  explicit RowPanels(int64_t rows) : count((rows + micro_rows - 1) / micro_rows), base(rows / count), extra(rows % count) {}
  int64_t start(int64_t panel) const { return panel * base + least(panel, extra); }
  int64_t height(int64_t panel) const { return base + (panel < extra); }
};

// One block of k within one unit, and where its sums go.
struct Block {
  int64_t k, depth;
  bool first, last;       // in its unit
  int64_t tree_count;     // finished subtrees that join when the unit ends
  bool to_c;              // the result goes to C: it is the whole sum or the running one
  bool final;             // the whole sum: the bias joins
};

class Tile {
 public:
  Tile(const GemmProblem& problem, const GemmPlan& plan, const GemmTile& tile, float* scratch)
      : p_(problem), plan_(plan), tile_(tile), panels_(tile.rows), width_(plan.panel_vectors * lanes) {
    packed_b_ = scratch;
    packed_a_ = packed_b_ + plan.packed_b;
    partials_ = packed_a_ + plan.packed_a;
    edge_ = partials_ + plan.partials;
  }

  void run() {
    const int64_t length = p_.k / p_.units;
    for (int64_t unit = 0; unit < p_.units; ++unit) {
      int64_t done = 0;
      do {
        Block block{unit * length + done, least(gemm_k_block, length - done), done == 0, done + gemm_k_block >= length, 0, true, false};
        if (block.last) {
          block.tree_count = __builtin_ctzll(~static_cast<uint64_t>(unit));  // as many subtrees as a binary counter carries
          block.final = unit + 1 == p_.units;
          block.to_c = block.final;
        }
        add_block(block);
        done += gemm_k_block;
      } while (done < length);
    }
  }

 private:
  // The width of the panel of B that starts at a column of the tile.
  int64_t panel_width(int64_t column) const {
    const int64_t left = tile_.columns - column;
    if (left >= width_) return width_;
    return left > lanes ? 2 * lanes : lanes;
  }
  bool is_direct(int64_t column, int64_t width) const { return plan_.direct_b && column + width <= tile_.columns; }

  void add_block(const Block& block) {
    pack_b(block);
    const int64_t step = plan_.block_rows / micro_rows;
    for (int64_t panel = 0; panel < panels_.count; panel += step) {
      const int64_t end = least(panel + step, panels_.count);
      if (!plan_.direct_a) pack_a(block, panel, end);
      for (int64_t column = 0; column < tile_.columns;) {
        const int64_t width = panel_width(column);
        for (int64_t i = panel; i < end; ++i) add_panel(block, panel, i, column, width);
        column += width;
      }
    }
  }

  void pack_b(const Block& block) {
    for (int64_t column = 0; column < tile_.columns;) {
      const int64_t width = panel_width(column), count = least(width, tile_.columns - column);
      if (!is_direct(column, width)) {
        float* to = packed_b_ + column * block.depth;
        if (p_.pack_b) {
          p_.pack_b(tile_.at.b_context, tile_.product, tile_.column + column, count, block.k, block.depth, to, width);
        } else {
          pack_panel(tile_.at.b + (tile_.column + column) * p_.b_col + block.k * p_.b_row, p_.b_col, p_.b_row, count, block.depth, to, width);
        }
        if (count < width)
          for (int64_t k = 0; k < block.depth; ++k)
            for (int64_t i = count; i < width; ++i) to[k * width + i] = 0;
      }
      column += width;
    }
  }

  void pack_a(const Block& block, int64_t panel, int64_t end) {
    const int64_t first = panels_.start(panel);
    for (int64_t i = panel; i < end; ++i) {
      const int64_t row = panels_.start(i), height = panels_.height(i);
      float* to = packed_a_ + (row - first) * block.depth;
      if (p_.pack_a) {
        p_.pack_a(tile_.at.a_context, tile_.product, tile_.row + row, height, block.k, block.depth, to, height);
      } else {
        pack_panel(tile_.at.a + (tile_.row + row) * p_.a_row + block.k * p_.a_col, p_.a_row, p_.a_col, height, block.depth, to, height);
      }
    }
  }

  float* c_at(int64_t row, int64_t column) const {
    if (p_.c_run) column = column / p_.c_run * p_.c_jump + column % p_.c_run;
    return tile_.at.c + row * p_.c_row + column;
  }

  void add_panel(const Block& block, int64_t first_panel, int64_t panel, int64_t column, int64_t width) {
    const int64_t row = panels_.start(panel), height = panels_.height(panel), vectors = width / lanes;
    const int64_t c_row = tile_.row + row, c_column = tile_.column + column, count = least(width, tile_.columns - column);
    MicroCall call{};
    call.depth = block.depth;
    MicroMode mode = MicroMode::packed;
    if (plan_.direct_a) {
      mode = MicroMode::direct_a;
      call.a = tile_.at.a + c_row * p_.a_row + block.k;
      call.a_step = p_.a_row;
    } else {
      call.a = packed_a_ + (row - panels_.start(first_panel)) * block.depth;
    }
    if (is_direct(column, width)) {
      mode = MicroMode::direct_b;
      call.b = tile_.at.b + block.k * p_.b_row + c_column;
      call.b_step = p_.b_row;
    } else {
      call.b = packed_b_ + column * block.depth;
    }

    const bool whole = count == width && (!p_.c_run || c_column % p_.c_run + width <= p_.c_run);
    MicroEnd& end = call.end;
    float* c = whole ? c_at(c_row, c_column) : edge_;
    const int64_t c_step = whole ? p_.c_row : width;
    if (!whole) locate_edge(c_column, count);
    if (!block.first) {
      if (!whole) load_edge(c_row, height, count, width);
      end.running = c;
      end.running_step = c_step;
    }
    // A tile of partial sums is contiguous, in the order in which the tiles come.
    const int64_t level = plan_.tile_rows * round_up(plan_.tile_columns, width_);
    float* partial = partials_ + column * tile_.rows + row * width;
    end.tree = partial;
    end.tree_count = block.tree_count;
    end.tree_step = level;
    if (block.final) add_bias(end, c_row, c_column, count, width);
    end.to = block.to_c ? c : partial + block.tree_count * level;
    end.to_step = block.to_c ? c_step : width;
    micro_kernel(mode, static_cast<int>(height), static_cast<int>(vectors))(call);
    if (block.to_c && !whole) store_edge(c_row, height, count, width);
  }

  void add_bias(MicroEnd& end, int64_t row, int64_t column, int64_t count, int64_t width) {
    if (p_.bias == GemmBias::rows) end.bias_rows = tile_.at.bias + row;
    if (p_.bias != GemmBias::columns) return;
    end.bias_columns = tile_.at.bias + column;
    if (count == width) return;
    float* padded = edge_ + micro_rows * width;
    for (int64_t i = 0; i < width; ++i) padded[i] = i < count ? tile_.at.bias[column + i] : 0;
    end.bias_columns = padded;
  }

  // A tile that C has no room for, or whose columns are not contiguous, is computed in scratch.
  void locate_edge(int64_t column, int64_t count) {
    for (int64_t i = 0; i < count; ++i) edge_at_[i] = c_at(0, column + i) - tile_.at.c;
  }
  void load_edge(int64_t row, int64_t height, int64_t count, int64_t width) {
    for (int64_t r = 0; r < height; ++r)
      for (int64_t i = 0; i < width; ++i) edge_[r * width + i] = i < count ? tile_.at.c[(row + r) * p_.c_row + edge_at_[i]] : 0;
  }
  void store_edge(int64_t row, int64_t height, int64_t count, int64_t width) {
    for (int64_t r = 0; r < height; ++r)
      for (int64_t i = 0; i < count; ++i) tile_.at.c[(row + r) * p_.c_row + edge_at_[i]] = edge_[r * width + i];
  }

  const GemmProblem& p_;
  const GemmPlan& plan_;
  const GemmTile& tile_;
  RowPanels panels_;
  int64_t width_;
  float *packed_b_, *packed_a_, *partials_, *edge_;
  int64_t edge_at_[8 * lanes];
};

void run_tile(const GemmProblem& problem, const GemmPlan& plan, const GemmTile& tile, float* scratch) {
  Tile(problem, plan, tile, scratch).run();
}

int thin_panel_vectors(int64_t rows) {
  if (rows > micro_rows) return 2;
  const int wide = wide_vectors(static_cast<int>(rows));
  return wide < 2 ? 2 : wide;
}

}  // namespace

extern const GemmLevel gemm_level;
const GemmLevel gemm_level = {lanes, micro_rows, thin_panel_vectors, run_tile};

}  // namespace epl::cpu::EPL_SIMD
