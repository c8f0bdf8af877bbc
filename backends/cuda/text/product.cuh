// The order-invariant product of backends/cpu/kernels/gemm.h: an element is one chain of fused multiply-adds for every
// block of 256 k, started from +0; blocks of a unit are added in order, units by the binary tree, the bias comes last.
//
// A block of threads computes a square tile of C, 16 by 16 threads with R by R elements each; operands pass through
// shared memory. Each thread owns the chains of its elements.
#pragma once

#include "backends/cuda/text/machine.cuh"

namespace epl::cuda {

constexpr int64_t product_block = 256;  // gemm_k_block
constexpr int product_step = 16;        // of k that is in shared memory at a time

// P gives m, n, k, units, levels (of the tree, at least 1) and, of product number `batch`: a(batch, row, k),
// b(batch, k, column), bias(batch, row, column, sum) and c(batch, row, column), where the element lies.
template <class P, int R> inline void product_tile(const P& p, float* c) {
  constexpr int tile = 16 * R;
  __shared__ float a_tile[product_step][tile + 1];
  __shared__ float b_tile[product_step][tile + 1];
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const int64_t batch = blockIdx.z, first_row = int64_t(blockIdx.y) * tile, first_column = int64_t(blockIdx.x) * tile;
  constexpr int64_t run = P::k / P::units;
  float tree[P::levels][R][R], sum[R][R], chain[R][R];
  for (int64_t unit = 0; unit < P::units; ++unit) {
    for (int i = 0; i < R; ++i)
      for (int j = 0; j < R; ++j) sum[i][j] = 0.0f;
    for (int64_t block = 0; block < run; block += product_block) {
      const int64_t depth = run - block < product_block ? run - block : product_block;
      for (int i = 0; i < R; ++i)
        for (int j = 0; j < R; ++j) chain[i][j] = 0.0f;
      for (int64_t done = 0; done < depth; done += product_step) {
        const int64_t first = unit * run + block + done;
        const int steps = int(depth - done < product_step ? depth - done : product_step);
        for (int i = threadIdx.x; i < tile * product_step; i += 256) {
          // Neighbouring threads read neighbours in memory, whichever way an operand lies.
          const int at_row = P::a_rows_follow ? i % tile : i / product_step;
          const int at_k = P::a_rows_follow ? i / tile : i % product_step;
          const bool there = at_k < steps && first_row + at_row < P::m;
          a_tile[at_k][at_row] = there ? p.a(batch, first_row + at_row, first + at_k) : 0.0f;
        }
        for (int i = threadIdx.x; i < tile * product_step; i += 256) {
          const int at_column = P::b_columns_follow ? i % tile : i / product_step;
          const int at_k = P::b_columns_follow ? i / tile : i % product_step;
          const bool there = at_k < steps && first_column + at_column < P::n;
          b_tile[at_k][at_column] = there ? p.b(batch, first + at_k, first_column + at_column) : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < steps; ++k) {
          float a[R], b[R];
#pragma unroll
          for (int i = 0; i < R; ++i) a[i] = a_tile[k][y + 16 * i];
#pragma unroll
          for (int j = 0; j < R; ++j) b[j] = b_tile[k][x + 16 * j];
#pragma unroll
          for (int i = 0; i < R; ++i) {
#pragma unroll
            for (int j = 0; j < R; ++j) chain[i][j] = ::fmaf(a[i], b[j], chain[i][j]);
          }
        }
        __syncthreads();
      }
      for (int i = 0; i < R; ++i)
        for (int j = 0; j < R; ++j) sum[i][j] = block == 0 ? chain[i][j] : sum[i][j] + chain[i][j];
    }
    // Subtrees join as a binary counter carries.
    int level = 0;
    for (int64_t bit = unit; bit & 1; bit >>= 1, ++level)
      for (int i = 0; i < R; ++i)
        for (int j = 0; j < R; ++j) sum[i][j] = tree[level][i][j] + sum[i][j];
    if (unit + 1 < P::units) {
      for (int i = 0; i < R; ++i)
        for (int j = 0; j < R; ++j) tree[level][i][j] = sum[i][j];
    }
  }
  for (int i = 0; i < R; ++i) {
    for (int j = 0; j < R; ++j) {
      const int64_t row = first_row + y + 16 * i, column = first_column + x + 16 * j;
      if (row < P::m && column < P::n) c[p.c(batch, row, column)] = p.biased(batch, row, column, sum[i][j]);
    }
  }
}

}  // namespace epl::cuda
