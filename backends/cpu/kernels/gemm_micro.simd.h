// The micro-kernel: R rows by V vectors of C, all in registers, over one block of k.
//
// It is a template over the tile's size and over how A and B lie; `micro_kernel` picks an instance. The end of a block
// happens in registers too: the running sum of the unit and the finished subtrees of earlier units are added there, so a
// tree over units costs about one load and one store per element and unit.
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

// What happens to a tile once its block of k is summed, in this order.
struct MicroEnd {
  const float* running = nullptr;  // the sum of the unit's earlier blocks; or null
  int64_t running_step = 0;        // between its rows
  const float* tree = nullptr;     // subtree sums of earlier units: `tree_count` tiles, `tree_step` apart, densest first
  int64_t tree_count = 0, tree_step = 0;
  const float* bias_columns = nullptr;
  const float* bias_rows = nullptr;
  float* to = nullptr;
  int64_t to_step = 0;
};

struct MicroCall {
  int64_t depth;       // length of the chain
  const float* a;      // packed: `a_step` floats per k; direct: rows `a_step` apart
  int64_t a_step;
  const float* b;      // a row of the panel per k, `b_step` apart
  int64_t b_step;
  MicroEnd end;
};

enum class MicroMode { packed, direct_a, direct_b };

template <int R, int V>
HWY_INLINE void finish(Vector (&sum)[R][V], const MicroEnd& end) {
  const Floats d;
  if (end.running) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = hn::Add(hn::LoadU(d, end.running + r * end.running_step + v * lanes), sum[r][v]);
  }
  for (int64_t t = 0; t < end.tree_count; ++t) {
    const float* tile = end.tree + t * end.tree_step;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = hn::Add(hn::LoadU(d, tile + (r * V + v) * lanes), sum[r][v]);
  }
  if (end.bias_columns) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const Vector bias = hn::LoadU(d, end.bias_columns + v * lanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) sum[r][v] = hn::Add(sum[r][v], bias);
    }
  }
  if (end.bias_rows) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vector bias = hn::Set(d, end.bias_rows[r]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = hn::Add(sum[r][v], bias);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) hn::StoreU(sum[r][v], d, end.to + r * end.to_step + v * lanes);
}

// sum += a * b in one rounding, in place. Written as an instruction because GCC, left to choose, takes forms that overwrite
// a factor, moves the sums about between registers and in the end spills one.
HWY_INLINE void add_product(Vector& sum, Vector a, Vector b) {
#if HWY_ARCH_X86
  asm("vfmadd231ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
#else
  sum = hn::MulAdd(a, b, sum);
#endif
}

// One k: the outer product of a column of A and a row of B. What is fewer is held in registers.
template <int R, int V, MicroMode mode>
HWY_INLINE void multiply_add(Vector (&sum)[R][V], const float* const (&rows)[R], int64_t a_at, const float* b) {
  const Floats d;
  if constexpr (R < V) {
    Vector a[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) a[r] = hn::Set(d, mode == MicroMode::direct_a ? rows[r][a_at] : rows[0][a_at + r]);
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
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vector a = hn::Set(d, mode == MicroMode::direct_a ? rows[r][a_at] : rows[0][a_at + r]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) add_product(sum[r][v], a, bv[v]);
    }
  }
}

template <int R, int V, MicroMode mode>
void micro(const MicroCall& call) {
  constexpr int64_t ahead = 12;  // rows of B fetched ahead where they are read for the first and often only time
  const Floats d;
  Vector sum[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sum[r][v] = hn::Zero(d);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) __builtin_prefetch(call.end.to + r * call.end.to_step, 1);

  const float* rows[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) rows[r] = call.a + (mode == MicroMode::direct_a ? r * call.a_step : 0);
  const int64_t a_step = mode == MicroMode::direct_a ? 1 : mode == MicroMode::packed || mode == MicroMode::direct_b ? R : 0;
  const int64_t b_step = mode == MicroMode::direct_b ? call.b_step : V * lanes;
  const float* b = call.b;
  int64_t k = 0, a_at = 0;
  for (; k + 4 <= call.depth; k += 4) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      if constexpr (mode == MicroMode::direct_b) {
#pragma GCC unroll 8
        for (int v = 0; v < V; v += 16 / lanes) __builtin_prefetch(b + (j + ahead) * b_step + v * lanes);
      }
      multiply_add<R, V, mode>(sum, rows, a_at + j * a_step, b + j * b_step);
    }
    a_at += 4 * a_step;
    b += 4 * b_step;
  }
  for (; k < call.depth; ++k) {
    multiply_add<R, V, mode>(sum, rows, a_at, b);
    a_at += a_step;
    b += b_step;
  }
  finish<R, V>(sum, call.end);
}

using Micro = void (*)(const MicroCall&);

template <MicroMode mode, int R>
Micro pick_vectors(int vectors) {
  constexpr int wide = wide_vectors(R);
  if (vectors == 1) return micro<R, 1, mode>;
  if (vectors == 2) return micro<R, 2, mode>;
  return wide > 2 ? micro<R, wide, mode> : nullptr;
}

template <MicroMode mode, int R>
Micro pick_rows(int rows, int vectors) {
  if constexpr (R == 0) {
    return nullptr;
  } else {
    return rows == R ? pick_vectors<mode, R>(vectors) : pick_rows<mode, R - 1>(rows, vectors);
  }
}

// The instance for `rows` rows and a panel of `vectors` vectors: 1, 2 or wide_vectors(rows).
inline Micro micro_kernel(MicroMode mode, int rows, int vectors) {
  switch (mode) {
    case MicroMode::direct_a: return pick_rows<MicroMode::direct_a, micro_rows>(rows, vectors);
    case MicroMode::direct_b: return pick_rows<MicroMode::direct_b, micro_rows>(rows, vectors);
    default: return pick_rows<MicroMode::packed, micro_rows>(rows, vectors);
  }
}

}  // namespace epl::cpu::EPL_SIMD
