// Attention and its gradient by tiles, with the order of attention.cuh: every element keeps the chain that it has
// there, and a row's 16 lanes are 16 threads. A block of 256 threads has some rows of queries, or some keys; tiles of
// the other operands pass through shared memory. Thread (x, y) of 16 by 16 has the rows y * R + r, and of a tile the
// keys, or of a row the columns, x + 16 * c.
#pragma once

#include "backends/cuda/text/attention.cuh"
#include "backends/cuda/text/team.cuh"

namespace epl::cuda {

// A vector of a tile takes so many floats: an odd number of fours, so that eight vectors in a row lie in other banks.
constexpr int tile_stride(int64_t n) { return int((((n + 3) / 4) | 1) * 4); }
constexpr int columns_each(int64_t n) { return int((n + 15) / 16); }

// `count` vectors of n floats; behind `there` of them, and behind the end of each, zeros.
template <int64_t n, int count> inline void load_tile(const float* from, int64_t there, float* to) {
  constexpr int stride = tile_stride(n);
  for (int i = threadIdx.x; i < count * stride; i += 256) {
    const int at = i / stride, column = i % stride;
    to[i] = at < there && column < n ? from[at * n + column] : 0.0f;
  }
}

// products[r][c] = a[r] . b[c]: a chain of its own for each, in the order of the elements.
template <int64_t n, int A, int B>
inline void tile_dots(const float* a, int a_step, const float* b, int b_step, float (&products)[A][B]) {
#pragma unroll
  for (int r = 0; r < A; ++r)
#pragma unroll
    for (int c = 0; c < B; ++c) products[r][c] = 0.0f;
  const auto join = [&](const float(&left)[A], const float(&right)[B]) {
#pragma unroll
    for (int r = 0; r < A; ++r)
#pragma unroll
      for (int c = 0; c < B; ++c) products[r][c] = ::fmaf(left[r], right[c], products[r][c]);
  };
  for (int64_t i = 0; i + 4 <= n; i += 4) {
    float4 left[A], right[B];
#pragma unroll
    for (int r = 0; r < A; ++r) left[r] = *reinterpret_cast<const float4*>(a + r * a_step + i);
#pragma unroll
    for (int c = 0; c < B; ++c) right[c] = *reinterpret_cast<const float4*>(b + c * b_step + i);
    float l[4][A], m[4][B];
#pragma unroll
    for (int r = 0; r < A; ++r) l[0][r] = left[r].x, l[1][r] = left[r].y, l[2][r] = left[r].z, l[3][r] = left[r].w;
#pragma unroll
    for (int c = 0; c < B; ++c) m[0][c] = right[c].x, m[1][c] = right[c].y, m[2][c] = right[c].z, m[3][c] = right[c].w;
#pragma unroll
    for (int e = 0; e < 4; ++e) join(l[e], m[e]);
  }
  for (int64_t i = n / 4 * 4; i < n; ++i) {
    float l[A], m[B];
    for (int r = 0; r < A; ++r) l[r] = a[r * a_step + i];
    for (int c = 0; c < B; ++c) m[c] = b[c * b_step + i];
    join(l, m);
  }
}

template <class P> struct RowsOfAttention {
  int64_t batch, head, first, first_key;  // `first`: row of queries of the block
  static constexpr int64_t blocks(int rows) { return (P::queries + rows - 1) / rows; }
  RowsOfAttention(int rows)
      : batch(blockIdx.x / blocks(rows) / P::heads),
        head(blockIdx.x / blocks(rows) % P::heads),
        first(blockIdx.x % blocks(rows) * rows),
        first_key((batch * P::key_heads + head / (P::heads / P::key_heads)) * P::keys) {}
  int64_t at(int64_t row) const { return (batch * P::heads + head) * P::queries + row; }
};
// How many keys of a tile a row sees, and with how many its chains go on.
template <class P> inline void keys_of(int64_t row, int64_t key, int& seen, int& some) {
  seen = some = 0;
  if (row >= P::queries) return;
  const AttentionPosition<P> position(row, key);
  if (position.empty()) return;
  seen = int(position.seen()), some = int(position.seen_by_granule());
}

// chain[c] goes on over `some` elements: weights[j] * tile[j][x + 16 c].
template <int64_t n, int R>
inline void tile_chains(const float* weights, int weights_step, const float* tile, const int (&some)[R],
                        float (&chain)[R][columns_each(n)], int x) {
  int all = some[0], most = some[0];
  for (int r = 1; r < R; ++r) all = some[r] < all ? some[r] : all, most = some[r] > most ? some[r] : most;
  constexpr int stride = tile_stride(n);
#pragma unroll 4
  for (int j = 0; j < most; ++j) {
#pragma unroll
    for (int c = 0; c < columns_each(n); ++c) {
      const float other = x + 16 * c < n ? tile[j * stride + x + 16 * c] : 0.0f;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const float next = ::fmaf(weights[r * weights_step + j], other, chain[r][c]);
        chain[r][c] = j < all || j < some[r] ? next : chain[r][c];
      }
    }
  }
}

template <class P, int R>
inline void attention_tiles(const float* q, const float* k, const float* v, const float* bias, float* y, float* lse) {
  constexpr int rows = 16 * R, depth_stride = tile_stride(P::depth), value_stride = tile_stride(P::values);
  constexpr int wide = depth_stride > value_stride ? depth_stride : value_stride, weights_stride = attention_keys + 4;
  constexpr int columns = columns_each(P::values);
  __shared__ __align__(16) float own_q[rows * depth_stride];
  __shared__ __align__(16) float tile[attention_keys * wide];
  __shared__ __align__(16) float weights[rows * weights_stride];
  const RowsOfAttention<P> block(rows);
  const int x = threadIdx.x % 16, y_of = threadIdx.x / 16 * R;
  load_tile<P::depth, rows>(q + block.at(block.first) * P::depth, P::queries - block.first, own_q);
  float largest[R], sums[R], result[R][columns];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    largest[r] = attention_lowest, sums[r] = 0.0f;
#pragma unroll
    for (int c = 0; c < columns; ++c) result[r][c] = 0.0f;
  }
  for (int64_t key = 0; key < P::keys; key += attention_keys) {
    if (P::causal && key > block.first + rows + attention_granule) break;
    const int64_t keys = fewer(attention_keys, P::keys - key);
    __syncthreads();
    load_tile<P::depth, attention_keys>(k + (block.first_key + key) * P::depth, keys, tile);
    __syncthreads();
    float scores[R][4], rescale[R];
    tile_dots<P::depth>(own_q + y_of * depth_stride, depth_stride, tile + x * depth_stride, 16 * depth_stride, scores);
    int seen[R], some[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int64_t row = block.first + y_of + r;
      keys_of<P>(row, key, seen[r], some[r]);
      const float before = largest[r];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (x + 16 * c >= seen[r]) continue;
        scores[r][c] = attention_biased<P>(attention_capped<P>(scores[r][c]), bias, block.batch, block.head, row,
                                           key + x + 16 * c);
        largest[r] = largest[r] > scores[r][c] ? largest[r] : scores[r][c];
      }
      for (int half = 8; half > 0; half /= 2) {
        const float other = __shfl_xor_sync(epl::cpu::gpu::threads_of_team(), largest[r], half, 16);
        largest[r] = largest[r] > other ? largest[r] : other;
      }
      rescale[r] = epl::cpu::gpu::exp(before - largest[r]);
      if (some[r] > 0) sums[r] = sums[r] * rescale[r];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int at = x + 16 * c;
        const float weight = at < seen[r] ? epl::cpu::gpu::exp(scores[r][c] - largest[r]) : 0.0f;
        if (some[r] > 0) sums[r] = sums[r] + weight;
        weights[(y_of + r) * weights_stride + at] = weight;
      }
    }
    __syncthreads();
    load_tile<P::values, attention_keys>(v + (block.first_key + key) * P::values, keys, tile);
    __syncthreads();
    float chain[R][columns];
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int c = 0; c < columns; ++c) chain[r][c] = 0.0f;
    tile_chains<P::values>(weights + y_of * weights_stride, weights_stride, tile, some, chain, x);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (some[r] == 0) continue;
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        if (rescale[r] != 1.0f) result[r][c] = result[r][c] * rescale[r];
        result[r][c] = result[r][c] + chain[r][c];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    float sum = sums[r];
    for (int half = 8; half > 0; half /= 2)
      sum = sum + __shfl_xor_sync(epl::cpu::gpu::threads_of_team(), sum, half, 16);
    sum = __shfl_sync(epl::cpu::gpu::threads_of_team(), sum, 0, 16);
    const int64_t row = block.first + y_of + r;
    if (row >= P::queries) continue;
    const float inverse = 1.0f / sum;
#pragma unroll
    for (int c = 0; c < columns; ++c)
      if (x + 16 * c < P::values) y[block.at(row) * P::values + x + 16 * c] = result[r][c] * inverse;
    if (lse && x == 0) lse[block.at(row)] = largest[r] + epl::cpu::gpu::log(sum);
  }
}

// What a row's thread needs of it for weights and gradients.
struct RowNumbers {
  float lse, dot, correction;
};
template <class P>
inline AttentionPair pair_of(float product, float with_values, const RowNumbers& n, const float* bias, int64_t batch,
                             int64_t head, int64_t row, int64_t key) {
  const float capped = attention_capped<P>(product);
  const float e = epl::cpu::gpu::exp(attention_biased<P>(capped, bias, batch, head, row, key) - n.lse) * n.correction;
  float d = (e * (with_values - n.dot)) * P::scale();
  if (P::cap() != 0.0f) d = d * (1.0f - (capped * capped) * (1.0f / (P::cap() * P::cap())));
  return {e, d};
}

template <class P, int R>
inline void attention_query_tiles(const float* dy, const float* q, const float* k, const float* v, const float* lse,
                                  const float* bias, const float* dots, const float* corrections, float* dq) {
  constexpr int rows = 16 * R, depth_stride = tile_stride(P::depth), value_stride = tile_stride(P::values);
  constexpr int wide = depth_stride > value_stride ? depth_stride : value_stride, weights_stride = attention_keys + 4;
  constexpr int columns = columns_each(P::depth);
  __shared__ __align__(16) float own_q[rows * depth_stride];
  __shared__ __align__(16) float own_dy[rows * value_stride];
  __shared__ __align__(16) float tile[attention_keys * wide];
  __shared__ __align__(16) float weights[rows * weights_stride];
  const RowsOfAttention<P> block(rows);
  const int x = threadIdx.x % 16, y_of = threadIdx.x / 16 * R;
  load_tile<P::depth, rows>(q + block.at(block.first) * P::depth, P::queries - block.first, own_q);
  load_tile<P::values, rows>(dy + block.at(block.first) * P::values, P::queries - block.first, own_dy);
  float result[R][columns];
  RowNumbers numbers[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int64_t at = block.at(block.first + y_of + r);
    const bool there = block.first + y_of + r < P::queries;
    numbers[r] = {there ? lse[at] : 0.0f, there ? dots[at] : 0.0f, there ? corrections[at] : 0.0f};
  }
  for (int64_t key = 0; key < P::keys; key += attention_keys) {
    if (P::causal && key > block.first + rows + attention_granule) break;
    const int64_t keys = fewer(attention_keys, P::keys - key);
    __syncthreads();
    load_tile<P::values, attention_keys>(v + (block.first_key + key) * P::values, keys, tile);
    __syncthreads();
    float with_values[R][4], products[R][4];
    tile_dots<P::values>(own_dy + y_of * value_stride, value_stride, tile + x * value_stride, 16 * value_stride,
                         with_values);
    __syncthreads();
    load_tile<P::depth, attention_keys>(k + (block.first_key + key) * P::depth, keys, tile);
    __syncthreads();
    tile_dots<P::depth>(own_q + y_of * depth_stride, depth_stride, tile + x * depth_stride, 16 * depth_stride,
                        products);
    int seen[R], some[R];
    float chain[R][columns];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int64_t row = block.first + y_of + r;
      keys_of<P>(row, key, seen[r], some[r]);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int at = x + 16 * c;
        float gradient = 0.0f;
        if (at < seen[r])
          gradient =
              pair_of<P>(products[r][c], with_values[r][c], numbers[r], bias, block.batch, block.head, row, key + at)
                  .gradient;
        weights[(y_of + r) * weights_stride + at] = gradient;
      }
#pragma unroll
      for (int c = 0; c < columns; ++c) chain[r][c] = 0.0f;
    }
    __syncthreads();
    tile_chains<P::depth>(weights + y_of * weights_stride, weights_stride, tile, some, chain, x);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (some[r] == 0) continue;
#pragma unroll
      for (int c = 0; c < columns; ++c) result[r][c] = key == 0 ? chain[r][c] : result[r][c] + chain[r][c];
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int64_t row = block.first + y_of + r;
#pragma unroll
    for (int c = 0; c < columns; ++c)
      if (row < P::queries && x + 16 * c < P::depth) dq[block.at(row) * P::depth + x + 16 * c] = result[r][c];
  }
}

// The tile of rows of the CPU is three of these: chains go on over them.
constexpr int gradient_rows = 32;
static_assert(attention_rows % gradient_rows == 0);

template <class P, int R>
inline void attention_key_tiles(const float* dy, const float* q, const float* k, const float* v, const float* lse,
                                const float* bias, const float* dots, const float* corrections, float* dk, float* dv) {
  constexpr int keys = 16 * R, depth_stride = tile_stride(P::depth), value_stride = tile_stride(P::values);
  constexpr int depth_columns = columns_each(P::depth), value_columns = columns_each(P::values);
  constexpr int64_t repeat = P::heads / P::key_heads, blocks = (P::keys + keys - 1) / keys;
  constexpr int stride = gradient_rows + 4;
  __shared__ __align__(16) float own_k[keys * depth_stride];
  __shared__ __align__(16) float own_v[keys * value_stride];
  __shared__ __align__(16) float some_q[gradient_rows * depth_stride];
  __shared__ __align__(16) float some_dy[gradient_rows * value_stride];
  __shared__ __align__(16) float weights[keys * stride];
  __shared__ __align__(16) float gradients[keys * stride];
  const int x = threadIdx.x % 16, y = threadIdx.x / 16 * R;
  const int64_t first_key = blockIdx.x % blocks * keys, key_head = blockIdx.x / blocks % P::key_heads,
                batch = blockIdx.x / blocks / P::key_heads;
  const int64_t base = (batch * P::key_heads + key_head) * P::keys + first_key;
  const int64_t tile = first_key / attention_keys * attention_keys;
  load_tile<P::depth, keys>(k + base * P::depth, P::keys - first_key, own_k);
  load_tile<P::values, keys>(v + base * P::values, P::keys - first_key, own_v);
  float key_sum[R][depth_columns], value_sum[R][value_columns], key_chain[R][depth_columns],
      value_chain[R][value_columns];
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int c = 0; c < depth_columns; ++c) key_sum[r][c] = 0.0f;
#pragma unroll
    for (int c = 0; c < value_columns; ++c) value_sum[r][c] = 0.0f;
  }
  int64_t granule[R];
#pragma unroll
  for (int r = 0; r < R; ++r) granule[r] = tile + (first_key + y + r - tile) / attention_granule * attention_granule;
  for (int64_t head = key_head * repeat; head < (key_head + 1) * repeat; ++head) {
    const int64_t first = (batch * P::heads + head) * P::queries;
    for (int64_t row = 0; row < P::queries; row += attention_rows) {
      const int64_t rows = fewer(attention_rows, P::queries - row);
      if (P::causal && first_key - attention_granule >= row + rows) continue;  // of the first key's granule too
      int begin[R];  // of this tile's rows, where a key's chains begin; not before the end: the key has none
#pragma unroll
      for (int r = 0; r < R; ++r) {
        begin[r] = P::causal ? int(fewer(rows, more(0, granule[r] - row))) : 0;
#pragma unroll
        for (int c = 0; c < depth_columns; ++c) key_chain[r][c] = 0.0f;
#pragma unroll
        for (int c = 0; c < value_columns; ++c) value_chain[r][c] = 0.0f;
      }
      for (int64_t part = 0; part < rows; part += gradient_rows) {
        const int64_t at = first + row + part, there = fewer(gradient_rows, rows - part);
        __syncthreads();
        load_tile<P::depth, gradient_rows>(q + at * P::depth, there, some_q);
        load_tile<P::values, gradient_rows>(dy + at * P::values, there, some_dy);
        __syncthreads();
        float products[R][2], with_values[R][2];
        tile_dots<P::depth>(own_k + y * depth_stride, depth_stride, some_q + x * depth_stride, 16 * depth_stride,
                            products);
        tile_dots<P::values>(own_v + y * value_stride, value_stride, some_dy + x * value_stride, 16 * value_stride,
                             with_values);
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int i = x + 16 * c;
          const bool is_row = i < there;
          const RowNumbers numbers = {is_row ? lse[at + i] : 0.0f, is_row ? dots[at + i] : 0.0f,
                                      is_row ? corrections[at + i] : 0.0f};
          const int64_t seen = is_row ? AttentionPosition<P>(row + part + i, tile).seen() : 0;
#pragma unroll
          for (int r = 0; r < R; ++r) {
            AttentionPair pair{0.0f, 0.0f};
            if (first_key + y + r - tile < seen)
              pair = pair_of<P>(products[r][c], with_values[r][c], numbers, bias, batch, head, row + part + i,
                                first_key + y + r);
            weights[(y + r) * stride + i] = pair.weight;
            gradients[(y + r) * stride + i] = pair.gradient;
          }
        }
        __syncthreads();
        for (int i = 0; i < there; ++i) {
          float some_q_here[depth_columns], some_dy_here[value_columns];
#pragma unroll
          for (int c = 0; c < depth_columns; ++c)
            some_q_here[c] = x + 16 * c < P::depth ? some_q[i * depth_stride + x + 16 * c] : 0.0f;
#pragma unroll
          for (int c = 0; c < value_columns; ++c)
            some_dy_here[c] = x + 16 * c < P::values ? some_dy[i * value_stride + x + 16 * c] : 0.0f;
#pragma unroll
          for (int r = 0; r < R; ++r) {
            if (part + i < begin[r]) continue;
            const float weight = weights[(y + r) * stride + i], gradient = gradients[(y + r) * stride + i];
#pragma unroll
            for (int c = 0; c < value_columns; ++c)
              value_chain[r][c] = ::fmaf(weight, some_dy_here[c], value_chain[r][c]);
#pragma unroll
            for (int c = 0; c < depth_columns; ++c) key_chain[r][c] = ::fmaf(gradient, some_q_here[c], key_chain[r][c]);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (begin[r] >= rows) continue;
#pragma unroll
        for (int c = 0; c < depth_columns; ++c) key_sum[r][c] = key_sum[r][c] + key_chain[r][c];
#pragma unroll
        for (int c = 0; c < value_columns; ++c) value_sum[r][c] = value_sum[r][c] + value_chain[r][c];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (first_key + y + r >= P::keys) continue;
#pragma unroll
    for (int c = 0; c < depth_columns; ++c)
      if (x + 16 * c < P::depth) dk[(base + y + r) * P::depth + x + 16 * c] = key_sum[r][c];
#pragma unroll
    for (int c = 0; c < value_columns; ++c)
      if (x + 16 * c < P::values) dv[(base + y + r) * P::values + x + 16 * c] = value_sum[r][c];
  }
}

}  // namespace epl::cuda
