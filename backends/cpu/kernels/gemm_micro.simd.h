// The micro-kernel: R rows by V vectors of C, all in registers, over one block of k.
//
// It is a template over the tile's size and over how A and B lie; `micro_kernel` picks an instance. The end of a block
// happens in registers too: the running sum of the unit and the finished subtrees of earlier units are added there, so
// a tree over units costs about one load and one store per element and unit.
#pragma once

#include <hwy/highway.h>

#include <cstdint>

namespace epl::cpu::EPL_SIMD {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;
inline constexpr int lanes = static_cast<int>(hn::MaxLanes(Floats()));
// Accumulators: the tile takes all registers but those for a row of B and one element of A.
inline constexpr int accumulators = HWY_TARGET == HWY_AVX2 ? 12 : lanes == 16 ? 28 : 24;
inline constexpr int micro_rows = accumulators / 2;
// A thin tile is wide, to have enough independent chains of multiply-adds.
constexpr int wide_vectors(int rows) { return accumulators / rows < 8 ? accumulators / rows : 8; }

// Where the sums of a tile go. A call covers either one block of a unit longer than a block, or one or more whole
// units.
struct MicroEnd {
  int64_t unit = 0;         // of the first sum of the call
  bool unfinished = false;  // the unit has more blocks to come: its sum so far goes to `c`
  bool final = false;       // the call ends with the last unit of all: the whole sum goes to `c`
  bool running = false;     // `c` holds the sum of the unit's earlier blocks
  float* c = nullptr;
  int64_t c_step = 0;
  // Finished subtrees of units, tiles of R x V vectors: number t is the sum of 2^t units. Those that come and go within
  // a call, t < `passing`, lie next to each other in `passing_tree`; the others `tree_step` apart.
  int64_t passing = 0;
  float* passing_tree = nullptr;
  float* tree = nullptr;
  int64_t tree_step = 0;
  float* subtree(int64_t t, int64_t tile) const {
    return t < passing ? passing_tree + t * tile : tree + (t - passing) * tree_step;
  }
  const float* bias_columns = nullptr;  // added to the whole sum
  const float* bias_rows = nullptr;
};

struct MicroCall {
  int64_t depth;   // length of a chain
  int64_t chains;  // of as many units
  const float* a;  // AMode::packed: R floats per k; AMode::rows: rows `a_step` apart
  int64_t a_step;
  const float* b;  // BMode::packed: V vectors per k; else a row per k, `b_step` apart
  int64_t b_step;
  float* packed_b;  // BMode::packing: where the panel is packed along the way
  MicroEnd end;
};

enum class AMode { packed, rows };
enum class BMode { packed, direct, packing };

// Adds what is at `from` (R rows `step` apart), as the left summand.
template <int R, int V>
HWY_INLINE void add_tile(Vector (&sum)[R][V], const float* from, int64_t step) {
  const Floats d;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sum[r][v] = hn::Add(hn::LoadU(d, from + r * step + v * lanes), sum[r][v]);
}

// The end of the chain number `chain` of a call.
template <int R, int V>
HWY_INLINE void finish(Vector (&sum)[R][V], const MicroCall& call, int64_t chain) {
  const Floats d;
  const MicroEnd& end = call.end;
  float* to = end.c;
  int64_t step = end.c_step;
  if (end.running) add_tile<R, V>(sum, end.c, end.c_step);
  if (!end.unfinished) {
    // Subtrees join as a binary counter carries.
    const int64_t carries = __builtin_ctzll(~static_cast<uint64_t>(end.unit + chain));
    for (int64_t t = 0; t < carries; ++t) add_tile<R, V>(sum, end.subtree(t, R * V * lanes), V * lanes);
    if (!end.final || chain + 1 < call.chains) {
      to = end.subtree(carries, R * V * lanes);
      step = V * lanes;
    } else if (end.bias_columns) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        const Vector bias = hn::LoadU(d, end.bias_columns + v * lanes);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) sum[r][v] = hn::Add(sum[r][v], bias);
      }
    } else if (end.bias_rows) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const Vector bias = hn::Set(d, end.bias_rows[r]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sum[r][v] = hn::Add(sum[r][v], bias);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) hn::StoreU(sum[r][v], d, to + r * step + v * lanes);
}

// sum += a * b in one rounding, in place. Written as an instruction because GCC, left to choose, takes forms that
// overwrite a factor, moves the sums about between registers and in the end spills one.
HWY_INLINE void add_product(Vector& sum, Vector a, Vector b) {
#if HWY_ARCH_X86
  asm("vfmadd231ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
#else
  sum = hn::MulAdd(a, b, sum);
#endif
}

// One k: the outer product of a column of A and a row of B. Of the two, the shorter is held in registers.
template <int R, int V, AMode a_mode, BMode b_mode>
HWY_INLINE void multiply_add(Vector (&sum)[R][V], const float* const (&rows)[R], int64_t a_at, const float* b,
                             float* packed_b) {
  const Floats d;
  if constexpr (R < V) {
    Vector a[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) a[r] = hn::Set(d, a_mode == AMode::rows ? rows[r][a_at] : rows[0][a_at + r]);
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const Vector bv = hn::LoadU(d, b + v * lanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) add_product(sum[r][v], a[r], bv);
    }
  } else {
    Vector bv[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) bv[v] = hn::LoadU(d, b + v * lanes);
    if constexpr (b_mode == BMode::packing) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) hn::StoreU(bv[v], d, packed_b + v * lanes);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vector a = hn::Set(d, a_mode == AMode::rows ? rows[r][a_at] : rows[0][a_at + r]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) add_product(sum[r][v], a, bv[v]);
    }
  }
}

template <int R, int V, AMode a_mode, BMode b_mode>
void micro(const MicroCall& call) {
  constexpr int64_t ahead = 12;  // rows of B fetched ahead where they lie far apart
  constexpr int64_t a_step = a_mode == AMode::rows ? 1 : R;
  const Floats d;
  const float* rows[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) rows[r] = call.a + (a_mode == AMode::rows ? r * call.a_step : 0);
  const int64_t b_step = b_mode == BMode::packed ? V * lanes : call.b_step;
  const float* b = call.b;
  float* packed_b = call.packed_b;
  int64_t a_at = 0;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) __builtin_prefetch(call.end.c + r * call.end.c_step, 1);

  for (int64_t chain = 0; chain < call.chains; ++chain) {
    Vector sum[R][V];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = hn::Zero(d);
    int64_t k = 0;
    for (; k + 4 <= call.depth; k += 4) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        if constexpr (b_mode != BMode::packed) {
#pragma GCC unroll 8
          for (int v = 0; v < V; v += 16 / lanes) __builtin_prefetch(b + (j + ahead) * b_step + v * lanes);
        }
        multiply_add<R, V, a_mode, b_mode>(sum, rows, a_at + j * a_step, b + j * b_step, packed_b + j * V * lanes);
      }
      a_at += 4 * a_step;
      b += 4 * b_step;
      packed_b += 4 * V * lanes;
    }
    for (; k < call.depth; ++k) {
      multiply_add<R, V, a_mode, b_mode>(sum, rows, a_at, b, packed_b);
      a_at += a_step;
      b += b_step;
      packed_b += V * lanes;
    }
    finish<R, V>(sum, call, chain);
  }
}

using Micro = void (*)(const MicroCall&);

// Only what is of use is instantiated: thin tiles are wide, and only they read B directly; rows of A are read directly
// only with plain panels; a panel is packed along the way only if it is whole.
template <int R>
Micro pick_micro(AMode a, BMode b, int vectors) {
  constexpr int wide = wide_vectors(R) > 2 ? wide_vectors(R) : 2;
  if (a == AMode::rows) {
    if (b == BMode::packing) return micro<R, 2, AMode::rows, BMode::packing>;
    return vectors == 1 ? micro<R, 1, AMode::rows, BMode::packed> : micro<R, 2, AMode::rows, BMode::packed>;
  }
  if (b == BMode::packing) return micro<R, 2, AMode::packed, BMode::packing>;
  if (b == BMode::direct) return micro<R, wide, AMode::packed, BMode::direct>;
  if (vectors == 1) return micro<R, 1, AMode::packed, BMode::packed>;
  return vectors == 2 ? micro<R, 2, AMode::packed, BMode::packed> : micro<R, wide, AMode::packed, BMode::packed>;
}

// The instance for `rows` rows and a panel of `vectors` vectors: 1, 2 or wide_vectors(rows).
template <int R = micro_rows>
Micro micro_kernel(AMode a, BMode b, int rows, int vectors) {
  if constexpr (R == 0) {
    return nullptr;
  } else {
    return rows == R ? pick_micro<R>(a, b, vectors) : micro_kernel<R - 1>(a, b, rows, vectors);
  }
}

}  // namespace epl::cpu::EPL_SIMD
