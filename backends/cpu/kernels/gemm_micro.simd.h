// The micro-kernel: R rows by V vectors of C, all in registers, over one block of k.
//
// It is a template over the tile's size and over how A and B lie; `micro_kernel` picks an instance. The end of a block
// happens in registers too: the running sum of the unit and the finished subtrees of earlier units are added there. Of
// short units, two run at a time, each in half of the registers: a processor has room for few stores that wait for
// their sum, and a full tile stored at the end of each short unit stops it.
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

// Where the sums of a tile go. A call covers either some blocks of a unit longer than a block, or some full units.
struct MicroEnd {
  int64_t unit = 0;         // of the first sum of the call
  bool unfinished = false;  // the unit has more blocks to come: its sum so far goes to `c`
  bool final = false;       // the call ends with the last unit of all: the full sum goes to `c`
  bool running = false;     // `c` holds the sum of the unit's earlier blocks
  float* c = nullptr;
  int64_t c_step = 0;
  // Finished subtrees of units, tiles of R x V vectors: number t is the sum of 2^t units. Those that come and go within
  // a call, of 2^passing units, lie next to each other in `passing_tree`; the others, from t = passing, `tree_step`
  // apart.
  int64_t passing = 0;
  float* passing_tree = nullptr;  // or the sum of the unit's blocks so far
  float* tree = nullptr;
  int64_t tree_step = 0;
  const float* bias_columns = nullptr;  // added to the full sum
  const float* bias_rows = nullptr;
};

struct MicroCall {
  int64_t length;  // of k
  int64_t depth;   // of a chain; of the blocks of a unit the last may be shorter
  int64_t units;   // a chain each; 1: the chains, if more than one, are blocks of it
  const float* a;  // AMode::packed: R floats per k; AMode::rows: rows `a_step` apart
  int64_t a_step;
  const float* b = nullptr;  // a row per k, `b_step` apart; BMode::packed: unused
  int64_t b_step;
  float* packed_b;  // V vectors per k; BMode::packing: where the panel is packed along the way
  MicroEnd end;
};

enum class AMode { packed, rows };
enum class BMode { packed, direct, packing };

// Adds what is at `from` (R rows `step` apart), as the left summand.
template <int R, int V> HWY_INLINE void add_tile(Vector (&sum)[R][V], const float* from, int64_t step) {
  const Floats d;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sum[r][v] = hn::Add(hn::LoadU(d, from + r * step + v * lanes), sum[r][v]);
}

template <int R, int V> HWY_INLINE void store_tile(const Vector (&sum)[R][V], float* to, int64_t step) {
  const Floats d;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) hn::StoreU(sum[r][v], d, to + r * step + v * lanes);
}

// The end of a call, with the sum of all its units.
template <int R, int V> HWY_INLINE void finish(Vector (&sum)[R][V], const MicroCall& call) {
  const Floats d;
  const MicroEnd& end = call.end;
  float* to = end.c;
  int64_t step = end.c_step;
  if (!end.unfinished) {
    // Subtrees join as a binary counter carries.
    int64_t carries = __builtin_ctzll(~static_cast<uint64_t>(end.unit + call.units - 1)) - end.passing;
    float* tree = end.tree;
    for (; carries > 0; --carries, tree += end.tree_step) add_tile<R, V>(sum, tree, V * lanes);
    if (!end.final) {
      to = tree;
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
  store_tile<R, V>(sum, to, step);
}

// Whether an element is two numbers of bf16: in what is compiled for level v4_bf16.
#if defined(__AVX512BF16__)
inline constexpr bool elements_are_pairs = true;
#else
inline constexpr bool elements_are_pairs = false;
#endif

// sum += a * b in one rounding, in place; of pairs, that for the upper halves and then for the lower ones. Written as
// an instruction because GCC, left to choose, takes forms that overwrite a factor, moves the sums about between
// registers and in the end spills one.
HWY_INLINE void add_product(Vector& sum, Vector a, Vector b) {
#if defined(__AVX512BF16__)
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
#elif HWY_ARCH_X86
  asm("vfmadd231ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
#else
  sum = hn::MulAdd(a, b, sum);
#endif
}

// A walk along k through R rows of A, of a panel of `height`, and a panel of B.
template <int R, int V, AMode a_mode, BMode b_mode, int height> struct Walk {
  const float* rows[R];  // AMode::packed: the first alone
  int64_t column = 0;    // AMode::rows
  const float* b;
  int64_t b_step;
  float* packed_b;

  HWY_INLINE explicit Walk(const MicroCall& call)
      : b(b_mode == BMode::packed ? call.packed_b : call.b),
        b_step(b_mode == BMode::packed ? V * lanes : call.b_step),
        packed_b(call.packed_b) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) rows[r] = call.a + (a_mode == AMode::rows ? r * call.a_step : 0);
  }

  HWY_INLINE void advance(int64_t k) {
    if constexpr (a_mode == AMode::rows) {
      column += k;
    } else {
      rows[0] += k * height;
    }
    b += k * b_step;
    packed_b += k * V * lanes;
  }

  HWY_INLINE Vector a(int r, int64_t k) const {
    return hn::Set(Floats(), a_mode == AMode::rows ? rows[r][column + k] : rows[0][k * height + r]);
  }

  // The outer product of a column of A and a row of B, k steps on. Of the two, the shorter is held in registers.
  HWY_INLINE void multiply_add(Vector (&sum)[R][V], int64_t k) const {
    const Floats d;
    const float* from = b + k * b_step;
    if constexpr (R < V) {
      Vector av[R];
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) av[r] = a(r, k);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        const Vector bv = hn::LoadU(d, from + v * lanes);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) add_product(sum[r][v], av[r], bv);
      }
    } else {
      Vector bv[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) bv[v] = hn::LoadU(d, from + v * lanes);
      if constexpr (b_mode == BMode::packing) {
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) hn::StoreU(bv[v], d, packed_b + (k * V + v) * lanes);
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const Vector av = a(r, k);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) add_product(sum[r][v], av, bv[v]);
      }
    }
  }

  HWY_INLINE void prefetch(int64_t k) const {
    if constexpr (b_mode != BMode::packed) {
#pragma GCC unroll 8
      for (int v = 0; v < V; v += 16 / lanes) __builtin_prefetch(b + k * b_step + v * lanes);
    }
  }
};

template <int R, int V> HWY_INLINE void clear(Vector (&sum)[R][V]) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sum[r][v] = hn::Zero(Floats());
}

template <int R> HWY_INLINE void prefetch_rows(const MicroEnd& end) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) __builtin_prefetch(end.c + r * end.c_step, 1);
}

// Joins the sum of the 2^level units before number `next` of the call to the subtrees that wait, as a binary counter
// carries. Whether that was the end of the call.
template <int R, int V> HWY_INLINE bool join(Vector (&sum)[R][V], const MicroCall& call, int64_t next, int level) {
  float* tree = call.end.passing_tree;
  for (int64_t carry = (next - 1) >> level; carry & 1; carry >>= 1, tree += R * V * lanes)
    add_tile<R, V>(sum, tree, V * lanes);
  if (next == call.units) {
    finish<R, V>(sum, call);
    return true;
  }
  store_tile<R, V>(sum, tree, V * lanes);
  return false;
}

// Adds the sum of a block to those of the unit's blocks before it; `left` of k is to come. Whether that was the end of
// the call.
template <int R, int V>
HWY_INLINE bool join_block(Vector (&sum)[R][V], const MicroCall& call, bool first, int64_t left) {
  if (!first) {
    add_tile<R, V>(sum, call.end.passing_tree, V * lanes);
  } else if (call.end.running) {
    add_tile<R, V>(sum, call.end.c, call.end.c_step);
  }
  if (left == 0) {
    finish<R, V>(sum, call);
    return true;
  }
  store_tile<R, V>(sum, call.end.passing_tree, V * lanes);
  return false;
}

template <int R, int V, AMode a_mode, BMode b_mode> void micro(const MicroCall& call) {
  constexpr int64_t ahead = 12;  // rows of B fetched ahead where they lie far apart
  Walk<R, V, a_mode, b_mode, R> walk(call);
  prefetch_rows<R>(call.end);
  int64_t left = call.length;
  for (int64_t chain = 1;; ++chain) {
    Vector sum[R][V];
    clear(sum);
    const int64_t depth = left < call.depth ? left : call.depth;
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        walk.prefetch(j + ahead);
        walk.multiply_add(sum, j);
      }
      walk.advance(4);
    }
    for (; k < depth; ++k) {
      walk.multiply_add(sum, 0);
      walk.advance(1);
    }
    left -= depth;
    if (call.units == 1 ? join_block(sum, call, chain == 1, left) : join(sum, call, chain, 0)) return;
  }
}

// Some rows of a panel of `height`, two units at a time.
template <int R, int height, BMode b_mode> HWY_INLINE void pair_rows(const MicroCall& call) {
  Walk<R, 2, AMode::packed, b_mode, height> even(call);
  prefetch_rows<R>(call.end);
  for (int64_t chain = 2;; chain += 2) {
    auto odd = even;
    odd.advance(call.depth);
    Vector sum[R][2], other[R][2];
    clear(sum);
    clear(other);
    int64_t k = 0;
    for (; k + 4 <= call.depth; k += 4) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        even.multiply_add(sum, j);
        odd.multiply_add(other, j);
      }
      even.advance(4);
      odd.advance(4);
    }
    for (; k < call.depth; ++k) {
      even.multiply_add(sum, 0);
      odd.multiply_add(other, 0);
      even.advance(1);
      odd.advance(1);
    }
    even = odd;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) sum[r][v] = hn::Add(sum[r][v], other[r][v]);
    if (join(sum, call, chain, 1)) return;
  }
}

// An even number of units: there are registers for half a tile of two.
template <int R, BMode b_mode> void micro_pairs(const MicroCall& call) {
  constexpr int upper = R <= micro_rows / 2 ? R : (R + 1) / 2, lower = R - upper;
  pair_rows<upper, R, b_mode>(call);
  if constexpr (lower > 0) {
    MicroCall rest = call;
    rest.a += upper;
    rest.end.c += upper * call.end.c_step;
    rest.end.tree += upper * 2 * lanes;
    if (rest.end.bias_rows) rest.end.bias_rows += upper;
    pair_rows<lower, R, BMode::packed>(rest);
  }
}

using Micro = void (*)(const MicroCall&);

// Only what is of use is instantiated: thin tiles are wide, and only they read B directly; rows of A are read directly
// only with plain panels; a panel is packed along the way only if it is full. Pairs of bf16 come packed.
template <int R> Micro pick_micro(AMode a, BMode b, int vectors, bool pairs) {
  constexpr int wide = wide_vectors(R) > 2 ? wide_vectors(R) : 2;
  if constexpr (elements_are_pairs) {
    if (pairs && vectors == 2) return micro_pairs<R, BMode::packed>;
    if (vectors == 1) return micro<R, 1, AMode::packed, BMode::packed>;
    return vectors == 2 ? micro<R, 2, AMode::packed, BMode::packed> : micro<R, wide, AMode::packed, BMode::packed>;
  }
  if (pairs && a == AMode::packed && vectors == 2) {
    if (b == BMode::packing) return micro_pairs<R, BMode::packing>;
    if (b == BMode::packed) return micro_pairs<R, BMode::packed>;
  }
  if (a == AMode::rows) {
    if (b == BMode::packing) return micro<R, 2, AMode::rows, BMode::packing>;
    return vectors == 1 ? micro<R, 1, AMode::rows, BMode::packed> : micro<R, 2, AMode::rows, BMode::packed>;
  }
  if (b == BMode::packing) return micro<R, 2, AMode::packed, BMode::packing>;
  if (b == BMode::direct) return micro<R, wide, AMode::packed, BMode::direct>;
  if (vectors == 1) return micro<R, 1, AMode::packed, BMode::packed>;
  return vectors == 2 ? micro<R, 2, AMode::packed, BMode::packed> : micro<R, wide, AMode::packed, BMode::packed>;
}

// The instance for `rows` rows and a panel of `vectors` vectors: 1, 2 or wide_vectors(rows). `pairs`: two units at
// a time, for an even number of them.
template <int R = micro_rows> Micro micro_kernel(AMode a, BMode b, int rows, int vectors, bool pairs) {
  if constexpr (R == 0) {
    return nullptr;
  } else {
    return rows == R ? pick_micro<R>(a, b, vectors, pairs) : micro_kernel<R - 1>(a, b, rows, vectors, pairs);
  }
}

}  // namespace epl::cpu::EPL_SIMD
