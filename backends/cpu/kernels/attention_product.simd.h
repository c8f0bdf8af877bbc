// Small matrix products of tiles in scratch: C[rows, columns] (+)= A * B, each element one chain of fused
// multiply-adds, with parts left out that a causal mask leaves out. For *.simd.cc files only.
#pragma once

#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/simd_math.h"

namespace epl::cpu::EPL_SIMD {

// A(r, k) lies at a[r * a_step + k], or, transposed, at a[k * a_step + r].
enum class TileA { rows, transposed };

struct TileCall {
  int64_t depth;
  const float* a;
  int64_t a_step;
  const float* b;  // B(k, n) at b[k * b_step + n]
  int64_t b_step;
  float* c;
  int64_t c_step;
  bool add;
};

inline constexpr int tile_micro_rows = lanes == 16 ? 12 : 6;

// sum += a * b in one rounding, in place; left to itself, GCC moves the sums about between registers.
HWY_INLINE void accumulate_product(V& sum, V a, V b) {
#if HWY_ARCH_X86
  asm("vfmadd231ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
#else
  sum = hn::MulAdd(a, b, sum);
#endif
}

template <int R, int N, TileA mode>
HWY_INLINE void tile_step(V (&sum)[R][N], const float* const (&rows)[R], int64_t a_at, const float* b) {
  V bv[N];
#pragma GCC unroll 2
  for (int n = 0; n < N; ++n) bv[n] = hn::LoadU(f32, b + n * lanes);
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    const V a = set(mode == TileA::rows ? rows[r][a_at] : rows[0][a_at + r]);
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) accumulate_product(sum[r][n], a, bv[n]);
  }
}

// R rows by N vectors of C in registers.
template <int R, int N, TileA mode> void tile_micro(const TileCall& call) {
  V sum[R][N];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) sum[r][n] = hn::Zero(f32);
  const float* rows[R];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) rows[r] = call.a + (mode == TileA::rows ? r * call.a_step : 0);
  const int64_t a_step = mode == TileA::rows ? 1 : call.a_step;
  const float* b = call.b;
  int64_t k = 0, a_at = 0;
  for (; k + 4 <= call.depth; k += 4) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) tile_step<R, N, mode>(sum, rows, a_at + j * a_step, b + j * call.b_step);
    a_at += 4 * a_step;
    b += 4 * call.b_step;
  }
  for (; k < call.depth; ++k, a_at += a_step, b += call.b_step) tile_step<R, N, mode>(sum, rows, a_at, b);
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) {
      float* c = call.c + r * call.c_step + n * lanes;
      hn::StoreU(call.add ? hn::Add(hn::LoadU(f32, c), sum[r][n]) : sum[r][n], f32, c);
    }
  }
}

using TileMicro = void (*)(const TileCall&);
template <TileA mode, int R> HWY_INLINE TileMicro pick_tile_micro(int64_t rows, bool pair) {
  if constexpr (R == 0) {
    return nullptr;
  } else {
    if (rows == R) return pair ? tile_micro<R, 2, mode> : tile_micro<R, 1, mode>;
    return pick_tile_micro<mode, R - 1>(rows, pair);
  }
}

// What a granule of rows of C needs: columns [0, columns) and the part [begin, end) of the chain.
struct TileRange {
  int64_t begin, end, columns;
};

// `range(row)` is asked for the first row of every granule. `columns` of it are rounded up to full vectors; a chain
// longer than 256 goes by blocks, added in order.
template <TileA mode, class Range> void tile_product(int64_t rows, const TileCall& full, const Range& range) {
  constexpr int64_t block = 256;
  for (int64_t granule = 0; granule < rows; granule += attention_granule) {
    const TileRange part = range(granule);
    if (part.end <= part.begin || part.columns <= 0) continue;
    const int64_t height = rows - granule < attention_granule ? rows - granule : attention_granule;
    const int64_t panels = (height + tile_micro_rows - 1) / tile_micro_rows;
    for (int64_t k = part.begin; k < part.end; k += block) {
      for (int64_t panel = 0; panel < panels; ++panel) {
        const int64_t row = granule + height * panel / panels, count = granule + height * (panel + 1) / panels - row;
        const TileMicro pair = pick_tile_micro<mode, tile_micro_rows>(count, true);
        TileCall call = full;
        call.depth = part.end - k < block ? part.end - k : block;
        call.a += mode == TileA::rows ? row * full.a_step + k : k * full.a_step + row;
        call.b += k * full.b_step;
        call.c += row * full.c_step;
        call.add = full.add || k > part.begin;
        int64_t column = 0;
        for (; column + lanes < part.columns; column += 2 * lanes, call.b += 2 * lanes, call.c += 2 * lanes) pair(call);
        if (column < part.columns) pick_tile_micro<mode, tile_micro_rows>(count, false)(call);
      }
    }
  }
}

}  // namespace epl::cpu::EPL_SIMD
