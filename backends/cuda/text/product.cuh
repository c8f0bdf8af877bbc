// The order-invariant product of backends/cpu/kernels/gemm.h: an element is one chain of fused multiply-adds for every
// block of 256 k, started from +0; blocks of a unit are added in order, units by the binary tree, the bias comes last.
//
// A block of threads computes a square tile of C, 16 by 16 threads with R by R elements each; operands pass through
// shared memory. Each thread owns the chains of its elements. While a step of k is multiplied, the next one is on its
// way from memory to registers.
#pragma once

#include "backends/cuda/text/operand.cuh"

namespace epl::cuda {

constexpr int64_t product_block = 256;  // gemm_k_block
constexpr int product_step = 8;         // of k that is in shared memory at a time

// Which of its tile's rows, or columns, number i of a thread's is: groups of four follow one another, so that they are
// read at once.
template <int R> inline int product_position(int thread, int i) {
  return R == 1 ? thread : i / 4 * 64 + thread * 4 + i % 4;
}
template <int R> inline void product_read(const float* row, int thread, float* to) {
  if constexpr (R == 1) {
    to[0] = row[thread];
  } else {
#pragma unroll
    for (int i = 0; i < R; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(row + i * 16 + thread * 4);
      to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
    }
  }
}

// What passes through shared memory: a step of k of one operand, on its way.
template <int tile, bool elements_follow> struct ProductPart {
  static constexpr int each = (tile * product_step + 255) / 256;
  float held[each];

  static int element(int i) { return elements_follow ? i % tile : i / product_step; }
  static int step(int i) { return elements_follow ? i / tile : i % product_step; }
  // find(element, k) of those that are there. Neighbouring threads read neighbours in memory.
  template <class Find> void load(int64_t elements, int steps, const Find& find) {
#pragma unroll
    for (int n = 0; n < each; ++n) {
      const int i = threadIdx.x + 256 * n;
      const bool there = i < tile * product_step && step(i) < steps && element(i) < elements;
      held[n] = there ? find(element(i), step(i)) : 0.0f;
    }
  }
  void store(float (*to)[tile + 4]) const {
#pragma unroll
    for (int n = 0; n < each; ++n) {
      const int i = threadIdx.x + 256 * n;
      if (i < tile * product_step) to[step(i)][element(i)] = held[n];
    }
  }
};

// P gives m, n, k, units, levels (of the tree, at least 1) and, of product number `batch`: a(batch, row, k),
// b(batch, k, column), biased(batch, row, column, sum) and c(batch, row, column), where the element lies.
template <class P, int R> inline void product_tile(const P& p, float* c) {
  constexpr int tile = 16 * R;
  __shared__ __align__(16) float a_tile[2][product_step][tile + 4];
  __shared__ __align__(16) float b_tile[2][product_step][tile + 4];
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const int64_t batch = blockIdx.z, first_row = int64_t(blockIdx.y) * tile, first_column = int64_t(blockIdx.x) * tile;
  constexpr int64_t run = P::k / P::units;
  ProductPart<tile, P::a_rows_follow> next_a;
  ProductPart<tile, P::b_columns_follow> next_b;
  float tree[P::levels][R][R], sum[R][R], chain[R][R];
  const auto load = [&](int64_t first, int steps) {
    next_a.load(P::m - first_row, steps, [&](int row, int k) { return p.a(batch, first_row + row, first + k); });
    next_b.load(P::n - first_column, steps,
                [&](int column, int k) { return p.b(batch, first + k, first_column + column); });
  };
  const auto multiply = [&](int at, int k) {
    float a[R], b[R];
    product_read<R>(a_tile[at][k], y, a);
    product_read<R>(b_tile[at][k], x, b);
#pragma unroll
    for (int i = 0; i < R; ++i) {
#pragma unroll
      for (int j = 0; j < R; ++j) chain[i][j] = ::fmaf(a[i], b[j], chain[i][j]);
    }
  };
  const auto steps_of = [](int64_t left) { return int(left < product_step ? left : product_step); };
  int at = 0;
  for (int64_t unit = 0; unit < P::units; ++unit) {
#pragma unroll
    for (int i = 0; i < R; ++i) {
#pragma unroll
      for (int j = 0; j < R; ++j) sum[i][j] = 0.0f;
    }
    for (int64_t block = 0; block < run; block += product_block) {
      const int64_t depth = run - block < product_block ? run - block : product_block, first = unit * run + block;
#pragma unroll
      for (int i = 0; i < R; ++i) {
#pragma unroll
        for (int j = 0; j < R; ++j) chain[i][j] = 0.0f;
      }
      load(first, steps_of(depth));
      for (int64_t done = 0; done < depth; done += product_step) {
        const int steps = steps_of(depth - done);
        // The other of the two buffers may still be read by threads that are behind.
        at ^= 1;
        next_a.store(a_tile[at]);
        next_b.store(b_tile[at]);
        __syncthreads();
        if (done + product_step < depth) load(first + done + product_step, steps_of(depth - done - product_step));
        if (steps == product_step) {
#pragma unroll
          for (int k = 0; k < product_step; ++k) multiply(at, k);
        } else {
          for (int k = 0; k < steps; ++k) multiply(at, k);
        }
      }
#pragma unroll
      for (int i = 0; i < R; ++i) {
#pragma unroll
        for (int j = 0; j < R; ++j) sum[i][j] = block == 0 ? chain[i][j] : sum[i][j] + chain[i][j];
      }
    }
    // Subtrees join as a binary counter carries.
    int level = 0;
    for (int64_t bit = unit; bit & 1; bit >>= 1, ++level)
#pragma unroll
      for (int i = 0; i < R; ++i)
#pragma unroll
        for (int j = 0; j < R; ++j) sum[i][j] = tree[level][i][j] + sum[i][j];
    if (unit + 1 < P::units) {
#pragma unroll
      for (int i = 0; i < R; ++i)
#pragma unroll
        for (int j = 0; j < R; ++j) tree[level][i][j] = sum[i][j];
    }
  }
#pragma unroll
  for (int i = 0; i < R; ++i) {
#pragma unroll
    for (int j = 0; j < R; ++j) {
      const int64_t row = first_row + product_position<R>(y, i), column = first_column + product_position<R>(x, j);
      if (row < P::m && column < P::n) c[p.c(batch, row, column)] = p.biased(batch, row, column, sum[i][j]);
    }
  }
}

}  // namespace epl::cuda
