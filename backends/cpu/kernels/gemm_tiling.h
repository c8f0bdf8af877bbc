// How a product is cut into tiles of C, one task each; shared by gemm.cc, which chooses it, and the kernels of each
// level of processor (gemm_core.simd.cc). None of it changes a bit of the result.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/kernels/gemm.h"

namespace epl::cpu {

struct GemmTiling {
  int64_t tile_rows = 0, tile_columns = 0;  // of a task, before the edges of C
  int64_t row_tiles = 0, column_tiles = 0;  // per product of the batch
  int64_t products = 1;
  int64_t block_rows = 0;     // rows of A packed at a time: they stay in the second-level cache
  int64_t panel_vectors = 2;  // width of a panel of B in vectors
  bool direct_b = false;      // full panels of B are read where they lie, and not packed
  bool direct_a = false;      // so are rows of A
  bool shared_a = false;      // A is packed completely before the first tile, so that many tiles cost no more packing
  bool thin = false;          // B streams by; nothing is packed
  int64_t pass = 0;           // of k that a micro-kernel takes at a time: blocks of one unit, or short units
  int passing = 0;            // levels of the tree over units that come and go within a pass
  int levels = 0;             // the other ones, kept while a tile is computed
  int64_t partial_step = 0;   // floats of one level
  int64_t shared = 0;         // floats of an A that tiles share
  // Scratch of one thread, in floats.
  int64_t packed_a = 0, packed_b = 0, partials = 0, edge = 0, passing_tree = 0;
  int64_t scratch() const { return packed_a + packed_b + partials + edge + passing_tree; }
  int64_t tasks() const { return products * row_tiles * column_tiles; }
};

// A tile of one product: operands moved to the product's position in the batch.
struct GemmTile {
  int64_t product = 0;
  int64_t row = 0, rows = 0, column = 0, columns = 0;
  GemmArguments at;
};

// What a level of processor offers.
struct GemmLevel {
  int lanes;                           // floats in a vector
  int rows;                            // rows of the micro-kernel, with panels of two vectors
  int thin_rows;                       // most rows of the streaming kernel
  int (*panel_vectors)(int64_t rows);  // the best width of a panel for thin problems of so many rows
  // Where tiles share A: how many tasks pack it, and one of them; `full` is the one product as one tile.
  int64_t (*pack_tasks)(const GemmProblem& problem, const GemmTiling& tiling);
  void (*pack)(const GemmProblem& problem, const GemmTiling& tiling, const GemmTile& full, int64_t task, float* shared);
  void (*run)(const GemmProblem& problem, const GemmTiling& tiling, const GemmTile& tile, float* shared,
              float* scratch);
};

namespace v3 {
extern const GemmLevel gemm_level;
}
namespace v4 {
extern const GemmLevel gemm_level;
}
namespace v4_bf16 {
extern const GemmLevel gemm_level;  // of pairs
}

// k of a chain.
inline int64_t k_block(const GemmProblem& problem) { return problem.pairs ? gemm_k_block / 2 : gemm_k_block; }

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace epl::cpu
