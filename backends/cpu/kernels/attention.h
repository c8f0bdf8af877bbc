// Scaled dot-product attention and its gradient, float32, without ever holding the scores: by tiles of queries and
// keys.
//
// After "Online normalizer calculation for softmax" (Milakov, Gimelshein, 2018) and "FlashAttention" (Dao et al.,
// 2022).
//
// The bits of a row depend on its query, the keys and the values, on nothing else; in particular not on the threads,
// the other rows or the width of vectors:
//   - a score is one chain of fused multiply-adds over the depth, by blocks of 256 added in order; then scale, cap,
//     bias;
//   - keys go by tiles of `attention_keys` from key 0. Before a tile, sums are multiplied by exp(old maximum - new
//     one); the sum of exponentials has 16 lanes, key j in lane j mod 16, joined at the end; a tile's part of the
//     result is one chain over its keys;
//   - the gradients of keys and values add up by head of the group, and within it by tiles of `attention_rows` queries,
//     each one chain; that of queries by tiles of keys. Probabilities come again from the saved log-sum, and where it
//     is too large to be precise they are divided by their sum again, which has 16 lanes like the one before.
// Where the mask is causal, chains leave out what `attention_granule` neighbouring rows (or keys) all leave out.
//
// Thread safety: calls share nothing; each needs scratch of its own. Nothing allocates.
#pragma once

#include <cstdint>

namespace epl::cpu {

inline constexpr int64_t attention_rows = 96;      // queries of a tile
inline constexpr int64_t attention_keys = 64;      // keys of a tile
inline constexpr int64_t attention_granule = 12;   // divides attention_rows
inline constexpr float attention_large_lse = 512;  // as the op defines it

struct AttentionProblem {
  int64_t batch = 0, heads = 0, key_heads = 0, queries = 0, keys = 0, depth = 0, values = 0;
  float scale = 1, cap = 0;  // no cap: 0
  bool causal = false;
  int64_t bias_step[4] = {0, 0, 0, 0};  // of batch, head, query, key, in elements; 0 where it is broadcast

  int64_t repeat() const { return heads / key_heads; }
};

struct AttentionTensors {
  const float *q = nullptr, *k = nullptr, *v = nullptr, *bias = nullptr;  // bias may be null
  float *y = nullptr, *lse = nullptr;  // results of `forward`, operands of the gradient
  const float* dy = nullptr;
  const float* dots = nullptr;         // [b,h,s]: sum of dy * y
  const float* corrections = nullptr;  // [b,h,s]: what probabilities are multiplied by
  float *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

// The part of the gradient that one task computes: for one batch entry and key head, the tiles of keys [first_key,
// last_key) against heads [first_head, last_head) of the group and queries [first_row, last_row), all on tile
// boundaries.
struct AttentionGradTask {
  int64_t batch = 0, key_head = 0;
  int64_t first_head = 0, last_head = 0;
  int64_t first_key = 0, last_key = 0;
  int64_t first_row = 0, last_row = 0;
  bool keys = false;     // writes dk and dv of its keys: heads and queries are all of them
  bool queries = false;  // writes dq of its queries: keys are all of them
};

struct AttentionLoops {
  // y and lse of the tile of queries that starts at `row`.
  void (*forward)(const AttentionProblem&, const AttentionTensors&, int64_t batch, int64_t head, int64_t row,
                  float* scratch);
  // What the weights exp(score - lse) of the tile of queries that starts at `row` are to be multiplied by: 1 where lse
  // is precise.
  void (*corrections)(const AttentionProblem&, const AttentionTensors&, int64_t batch, int64_t head, int64_t row,
                      float* to, float* scratch);
  void (*grad)(const AttentionProblem&, const AttentionTensors&, const AttentionGradTask&, float* scratch);
  float (*dot)(const float* a, const float* b, int64_t n);  // in the canonical order of sums
};
int64_t attention_scratch_floats(const AttentionProblem& problem);
int64_t attention_grad_scratch_floats(const AttentionProblem& problem);

namespace v3 {
const AttentionLoops& attention_loops();
}
namespace v4 {
const AttentionLoops& attention_loops();
}

// Widths of scratch are full vectors at every level.
constexpr int64_t attention_padded(int64_t n) { return (n + 15) / 16 * 16; }

}  // namespace epl::cpu
