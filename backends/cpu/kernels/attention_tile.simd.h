// What the forward and the backward pass of attention share: packed tiles, the scores of a tile, the edge of the mask.
// For *.simd.cc files only.
#pragma once

#include <cstring>

#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/attention_product.simd.h"
#include "backends/cpu/kernels/gemm_pack.simd.h"

namespace epl::cpu::EPL_SIMD {

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// `count` rows of a matrix `width` wide, as a tile whose rows are full vectors: in place if they are already, else
// copied to `scratch` and padded with zeros.
struct TileView {
  const float* at;
  int64_t step;
};
inline TileView view_rows(const float* from, int64_t count, int64_t width, float* scratch) {
  const int64_t padded = attention_padded(width);
  if (padded == width) return {from, width};
  for (int64_t r = 0; r < count; ++r) {
    std::memcpy(scratch + r * padded, from + r * width, static_cast<size_t>(width) * sizeof(float));
    std::memset(scratch + r * padded + width, 0, static_cast<size_t>(padded - width) * sizeof(float));
  }
  return {scratch, padded};
}

// `count` rows as columns of a tile [width, attention_keys], zeros where there are fewer.
inline void pack_columns(const float* from, int64_t count, int64_t width, float* to) {
  pack_panel(from, width, 1, count, width, to, attention_keys);
  if (count == attention_keys) return;
  for (int64_t k = 0; k < width; ++k)
    std::memset(to + k * attention_keys + count, 0, static_cast<size_t>(attention_keys - count) * sizeof(float));
}

// A tile of queries [row, row + rows) against keys [key, key + keys).
struct TilePosition {
  int64_t row, rows, key, keys;
  bool causal;

  // How many keys of the tile the row sees, and how many a granule of rows sees at most.
  int64_t seen(int64_t r) const { return causal ? most(0, least(keys, row + r - key + 1)) : keys; }
  int64_t seen_by_granule(int64_t r) const {
    return causal ? most(0, least(keys, row + r + attention_granule - key)) : keys;
  }
  // The columns that are computed for a granule: full groups of 16.
  int64_t columns(int64_t r) const {
    return attention_padded(seen_by_granule(r / attention_granule * attention_granule));
  }
  // The first row that sees a key of the tile.
  int64_t first_row(int64_t k) const { return causal ? most(0, key + k - row) : 0; }
  bool empty() const { return causal && key > row + rows - 1; }
};

// The products q k^T of a tile, before scale, where the mask lets some row of a granule see them.
inline void tile_scores(const TilePosition& position, const float* q, int64_t depth, const float* packed_keys,
                        float* scores) {
  tile_product<TileA::rows>(position.rows, {0, q, depth, packed_keys, attention_keys, scores, attention_keys, false},
                            [&](int64_t r) HWY_ATTR { return TileRange{0, depth, position.columns(r)}; });
}

// From the product to the score: scale, cap, bias. `capped` is the score before the bias.
struct ScoreMap {
  V scale, cap, inverse_cap;
  bool has_cap;
  const float* bias;  // of the row, at the first key of the tile; or null
  int64_t bias_step;

  ScoreMap(const AttentionProblem& p, const AttentionTensors& t, int64_t batch, int64_t head)
      : scale(set(p.scale)),
        cap(set(p.cap)),
        inverse_cap(set(p.cap == 0 ? 0.0f : 1.0f / p.cap)),
        has_cap(p.cap != 0),
        bias(nullptr),
        bias_step(p.bias_step[3]),
        head_bias_(t.bias ? t.bias + batch * p.bias_step[0] + head * p.bias_step[1] : nullptr),
        row_step_(p.bias_step[2]) {}
  void at(int64_t row, int64_t key) {
    if (head_bias_) bias = head_bias_ + row * row_step_ + key * bias_step;
  }
  HWY_INLINE V capped(V product) const {
    const V x = hn::Mul(product, scale);
    return has_cap ? hn::Mul(tanh(hn::Mul(x, inverse_cap)), cap) : x;
  }
  // The bias of columns [column, column + lanes) is added; none at or after `seen` is read.
  HWY_INLINE V biased(V x, int64_t column, int64_t seen) const {
    if (!bias || column >= seen) return x;
    if (bias_step == 0) return hn::Add(x, set(*bias));
    if (column + lanes <= seen) return hn::Add(x, hn::LoadU(f32, bias + column));
    return hn::Add(x, hn::MaskedLoad(hn::FirstN(f32, static_cast<size_t>(seen - column)), f32, bias + column));
  }

 private:
  const float* head_bias_;
  int64_t row_step_;
};

HWY_INLINE hn::Mask<F> seen_mask(int64_t column, int64_t seen) {
  return hn::FirstN(f32, static_cast<size_t>(most(0, least(lanes, seen - column))));
}

}  // namespace epl::cpu::EPL_SIMD
