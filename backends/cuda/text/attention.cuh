// Attention and its gradient in the order of backends/cpu/kernels/attention.h: a thread for each row of queries, and
// for each key where the gradients of keys and values add up.
#pragma once

#include "backends/cuda/text/reduce.cuh"

namespace epl::cuda {

constexpr int attention_rows = 96, attention_keys = 64, attention_granule = 12;
constexpr float attention_large_lse = 512, attention_lowest = -3.402823466e+38f;

inline int64_t more(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t padded_lanes(int64_t n) { return (n + 15) / 16 * 16; }

// One row of queries against one tile of keys. P gives the shapes.
template <class P> struct AttentionPosition {
  int64_t row, key, keys;  // the row's number, the tile's first key, how many it has
  int64_t first, rows;     // of the tile of rows that the row belongs to

  AttentionPosition(int64_t row_number, int64_t first_key)
      : row(row_number),
        key(first_key),
        keys(fewer(attention_keys, P::keys - first_key)),
        first(row_number / attention_rows * attention_rows),
        rows(fewer(attention_rows, P::queries - row_number / attention_rows * attention_rows)) {}
  int64_t seen() const { return P::causal ? more(0, fewer(keys, row - key + 1)) : keys; }
  int64_t seen_by_granule() const {
    const int64_t granule = first + (row - first) / attention_granule * attention_granule;
    return P::causal ? more(0, fewer(keys, granule + attention_granule - key)) : keys;
  }
  bool empty() const { return P::causal && key > first + rows - 1; }
};

// One chain for every 256, added in order.
inline float attention_dot(const float* a, const float* b, int64_t depth) {
  float sum = 0.0f;
  for (int64_t block = 0; block < depth; block += 256) {
    float chain = 0.0f;
    for (int64_t i = block; i < fewer(depth, block + 256); ++i) chain = ::fmaf(a[i], b[i], chain);
    sum = block == 0 ? chain : sum + chain;
  }
  return sum;
}
template <class P> inline float attention_capped(float product) {
  const float x = product * P::scale();
  if (P::cap() == 0.0f) return x;
  return epl::cpu::gpu::tanh(x * (1.0f / P::cap())) * P::cap();
}
template <class P>
inline float attention_biased(float x, const float* bias, int64_t batch, int64_t head, int64_t row, int64_t key) {
  if (!bias) return x;
  return x + bias[batch * P::bias_batch + head * P::bias_head + row * P::bias_query + key * P::bias_key];
}

template <class P>
inline void attention_row(int64_t t, const float* q, const float* k, const float* v, const float* bias, float* y,
                          float* lse) {
  const int64_t row = t % P::queries, head = t / P::queries % P::heads, batch = t / P::queries / P::heads;
  const float* own_q = q + t * P::depth;
  const int64_t first_key = (batch * P::key_heads + head / (P::heads / P::key_heads)) * P::keys;
  float largest = attention_lowest, scores[attention_keys], result[P::values];
  Lanes sums;
  for (int l = 0; l < 16; ++l) sums.part[l] = 0.0f;
  for (int i = 0; i < P::values; ++i) result[i] = 0.0f;
  for (int64_t key = 0; key < P::keys; key += attention_keys) {
    const AttentionPosition<P> position(row, key);
    if (position.empty()) break;
    const int64_t seen = position.seen(), some = position.seen_by_granule();
    if (some == 0) continue;
    const float before = largest;
    for (int64_t j = 0; j < seen; ++j) {
      const float product = attention_dot(own_q, k + (first_key + key + j) * P::depth, P::depth);
      scores[j] = attention_biased<P>(attention_capped<P>(product), bias, batch, head, row, key + j);
      largest = largest > scores[j] ? largest : scores[j];
    }
    const float rescale = epl::cpu::gpu::exp(before - largest);
    for (int l = 0; l < 16; ++l) sums.part[l] = sums.part[l] * rescale;
    for (int64_t j = 0; j < attention_keys; ++j) {
      scores[j] = j < seen ? epl::cpu::gpu::exp(scores[j] - largest) : 0.0f;
      sums.part[j % 16] = sums.part[j % 16] + scores[j];
    }
    for (int i = 0; i < P::values; ++i) {
      if (rescale != 1.0f) result[i] = result[i] * rescale;
      float chain = 0.0f;
      for (int64_t j = 0; j < some; ++j) chain = ::fmaf(scores[j], v[(first_key + key + j) * P::values + i], chain);
      result[i] = result[i] + chain;
    }
  }
  const float sum = join_lanes<Sum>(sums), inverse = 1.0f / sum;
  for (int i = 0; i < P::values; ++i) y[t * P::values + i] = result[i] * inverse;
  if (lse) lse[t] = largest + epl::cpu::gpu::log(sum);
}

// The sum of dy * y, and what the weights exp(score - lse) are to be multiplied by: 1 where lse is precise.
template <class P>
inline void attention_prepare(int64_t t, const float* dy, const float* q, const float* k, const float* y,
                              const float* lse, const float* bias, float* dots, float* corrections) {
  const float *a = dy + t * P::values, *b = y + t * P::values;
  const auto product = [&](int64_t i) { return a[i] * b[i]; };
  dots[t] = reduce_row<Sum>(P::values, Found<decltype(product)>{product});
  corrections[t] = 1.0f;
  if (!(lse[t] > attention_large_lse || lse[t] < -attention_large_lse)) return;
  const int64_t row = t % P::queries, head = t / P::queries % P::heads, batch = t / P::queries / P::heads;
  const int64_t first_key = (batch * P::key_heads + head / (P::heads / P::key_heads)) * P::keys;
  Lanes sums;
  for (int l = 0; l < 16; ++l) sums.part[l] = 0.0f;
  for (int64_t key = 0; key < P::keys; key += attention_keys) {
    const AttentionPosition<P> position(row, key);
    if (position.empty()) break;
    for (int64_t j = 0; j < position.seen(); ++j) {
      const float product = attention_dot(q + t * P::depth, k + (first_key + key + j) * P::depth, P::depth);
      const float score = attention_biased<P>(attention_capped<P>(product), bias, batch, head, row, key + j);
      sums.part[j % 16] = sums.part[j % 16] + epl::cpu::gpu::exp(score - lse[t]);
    }
  }
  corrections[t] = 1.0f / join_lanes<Sum>(sums);
}

// The weight of a key for a row, and the gradient of their product.
struct AttentionPair {
  float weight, gradient;
};
template <class P>
inline AttentionPair attention_pair(const float* q, const float* k, const float* dy, const float* v, const float* bias,
                                    float lse, float dot, float correction, int64_t batch, int64_t head, int64_t row,
                                    int64_t key) {
  const float capped = attention_capped<P>(attention_dot(q, k, P::depth));
  const float e = epl::cpu::gpu::exp(attention_biased<P>(capped, bias, batch, head, row, key) - lse) * correction;
  float d = (e * (attention_dot(dy, v, P::values) - dot)) * P::scale();
  if (P::cap() != 0.0f) d = d * (1.0f - (capped * capped) * (1.0f / (P::cap() * P::cap())));
  return {e, d};
}

template <class P>
inline void attention_query_gradient(int64_t t, const float* dy, const float* q, const float* k, const float* v,
                                     const float* lse, const float* bias, const float* dots, const float* corrections,
                                     float* dq) {
  const int64_t row = t % P::queries, head = t / P::queries % P::heads, batch = t / P::queries / P::heads;
  const int64_t first_key = (batch * P::key_heads + head / (P::heads / P::key_heads)) * P::keys;
  float result[P::depth], chain[P::depth];
  for (int64_t key = 0; key < P::keys; key += attention_keys) {
    const AttentionPosition<P> position(row, key);
    if (position.empty()) break;
    const int64_t some = position.seen_by_granule();
    if (some == 0) continue;
    for (int i = 0; i < P::depth; ++i) chain[i] = 0.0f;
    for (int64_t j = 0; j < some; ++j) {
      const float *own_k = k + (first_key + key + j) * P::depth, *own_v = v + (first_key + key + j) * P::values;
      AttentionPair pair{0.0f, 0.0f};
      if (j < position.seen())
        pair = attention_pair<P>(q + t * P::depth, own_k, dy + t * P::values, own_v, bias, lse[t], dots[t],
                                 corrections[t], batch, head, row, key + j);
      for (int i = 0; i < P::depth; ++i) chain[i] = ::fmaf(pair.gradient, own_k[i], chain[i]);
    }
    for (int i = 0; i < P::depth; ++i) result[i] = key == 0 ? chain[i] : result[i] + chain[i];
  }
  for (int i = 0; i < P::depth; ++i) dq[t * P::depth + i] = result[i];
}

template <class P>
inline void attention_key_gradient(int64_t t, const float* dy, const float* q, const float* k, const float* v,
                                   const float* lse, const float* bias, const float* dots, const float* corrections,
                                   float* dk, float* dv) {
  constexpr int64_t repeat = P::heads / P::key_heads;
  const int64_t key = t % P::keys, key_head = t / P::keys % P::key_heads, batch = t / P::keys / P::key_heads;
  const int64_t tile = key / attention_keys * attention_keys;
  const int64_t granule = tile + (key - tile) / attention_granule * attention_granule;
  float key_sum[P::depth], value_sum[P::values], key_chain[P::depth], value_chain[P::values];
  for (int i = 0; i < P::depth; ++i) key_sum[i] = 0.0f;
  for (int i = 0; i < P::values; ++i) value_sum[i] = 0.0f;
  for (int64_t head = key_head * repeat; head < (key_head + 1) * repeat; ++head) {
    const int64_t first = (batch * P::heads + head) * P::queries;
    for (int64_t row = 0; row < P::queries; row += attention_rows) {
      const int64_t rows = fewer(attention_rows, P::queries - row);
      const int64_t begin = P::causal ? more(0, granule - row) : 0;
      if (begin >= rows) continue;
      for (int i = 0; i < P::depth; ++i) key_chain[i] = 0.0f;
      for (int i = 0; i < P::values; ++i) value_chain[i] = 0.0f;
      for (int64_t r = begin; r < rows; ++r) {
        const int64_t at = first + row + r;
        AttentionPair pair{0.0f, 0.0f};
        if (key - tile < AttentionPosition<P>(row + r, tile).seen())
          pair = attention_pair<P>(q + at * P::depth, k + t * P::depth, dy + at * P::values, v + t * P::values, bias,
                                   lse[at], dots[at], corrections[at], batch, head, row + r, key);
        for (int i = 0; i < P::values; ++i)
          value_chain[i] = ::fmaf(pair.weight, dy[at * P::values + i], value_chain[i]);
        for (int i = 0; i < P::depth; ++i) key_chain[i] = ::fmaf(pair.gradient, q[at * P::depth + i], key_chain[i]);
      }
      for (int i = 0; i < P::depth; ++i) key_sum[i] = key_sum[i] + key_chain[i];
      for (int i = 0; i < P::values; ++i) value_sum[i] = value_sum[i] + value_chain[i];
    }
  }
  for (int i = 0; i < P::depth; ++i) dk[t * P::depth + i] = key_sum[i];
  for (int i = 0; i < P::values; ++i) dv[t * P::values + i] = value_sum[i];
}

}  // namespace epl::cuda
