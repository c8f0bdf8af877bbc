// Products with one to three rows: B is read once, so the speed of memory decides. The sums of a strip of columns lie
// in the first-level cache instead of registers, and B streams by in the order in which it is stored.
#pragma once

#include "backends/cpu/kernels/gemm_micro.simd.h"
#include "backends/cpu/kernels/gemm_pack.simd.h"

namespace epl::cpu::EPL_SIMD {

inline constexpr int thin_rows = 3;

// One chain for each of R rows and `columns` columns; sums[r * columns + j].
struct ThinCall {
  int64_t depth, columns;
  const float* a;
  int64_t a_row, a_col;
  const float* b;
  int64_t b_row, b_col;
  float* sums;
};

HWY_INLINE void thin_scalar(const ThinCall& call, int64_t row, int64_t column) {
  float sum = 0;
  for (int64_t k = 0; k < call.depth; ++k)
    sum = __builtin_fmaf(call.a[row * call.a_row + k * call.a_col], call.b[k * call.b_row + column * call.b_col], sum);
  call.sums[row * call.columns + column] = sum;
}

// Adds K rows of B, times their elements of A, to the sums of the columns [begin, end).
template <int R, int K> void thin_add_rows(const ThinCall& call, int64_t k, int64_t begin, int64_t end) {
  const Floats d;
  Vector a[R][K];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int j = 0; j < K; ++j) a[r][j] = hn::Set(d, call.a[r * call.a_row + (k + j) * call.a_col]);
  const float* b = call.b + k * call.b_row;
  for (int64_t column = begin; column < end; column += lanes) {
    Vector sum[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sum[r] = k == 0 ? hn::Zero(d) : hn::LoadU(d, call.sums + r * call.columns + column);
#pragma GCC unroll 8
    for (int j = 0; j < K; ++j) {
      const Vector bv = hn::LoadU(d, b + j * call.b_row + column);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) add_product(sum[r], a[r][j], bv);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) hn::StoreU(sum[r], d, call.sums + r * call.columns + column);
  }
}

// B by rows: several rows at a time, each a stream of its own.
template <int R> void thin_by_rows(const ThinCall& call) {
  constexpr int K = 4;
  constexpr int64_t strip = 1024;
  const int64_t vectors_end = call.columns / lanes * lanes;
  for (int64_t begin = 0; begin < vectors_end; begin += strip) {
    const int64_t end = begin + strip < vectors_end ? begin + strip : vectors_end;
    int64_t k = 0;
    for (; k + K <= call.depth; k += K) thin_add_rows<R, K>(call, k, begin, end);
    for (; k < call.depth; ++k) thin_add_rows<R, 1>(call, k, begin, end);
  }
  for (int r = 0; r < R; ++r)
    for (int64_t column = vectors_end; column < call.columns; ++column) thin_scalar(call, r, column);
}

// B by columns: G groups of W columns are transposed in registers, four k at a time.
template <int R, int G> void thin_add_columns(const ThinCall& call, int64_t column) {
  constexpr int W = lanes < 8 ? 4 : 8;
  const hn::CappedTag<float, W> d;
  using V = hn::Vec<decltype(d)>;
  V sum[R][G];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) sum[r][g] = hn::Zero(d);
  const float* b = call.b + column * call.b_col;
  int64_t k = 0;
  for (; k + 4 <= call.depth; k += 4) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      V rows[4];
      load_transposed<W>(b + g * W * call.b_col + k, call.b_col, rows);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
          sum[r][g] = hn::MulAdd(hn::Set(d, call.a[r * call.a_row + (k + j) * call.a_col]), rows[j], sum[r][g]);
    }
  }
  for (; k < call.depth; ++k) {
    for (int g = 0; g < G; ++g) {
      float row[W];
      for (int i = 0; i < W; ++i) row[i] = b[(g * W + i) * call.b_col + k];
      for (int r = 0; r < R; ++r)
        sum[r][g] = hn::MulAdd(hn::Set(d, call.a[r * call.a_row + k * call.a_col]), hn::LoadU(d, row), sum[r][g]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) hn::StoreU(sum[r][g], d, call.sums + r * call.columns + column + g * W);
}

template <int R> void thin_by_columns(const ThinCall& call) {
  constexpr int W = lanes < 8 ? 4 : 8, G = 2;
  int64_t column = 0;
  for (; column + G * W <= call.columns; column += G * W) thin_add_columns<R, G>(call, column);
  for (; column + W <= call.columns; column += W) thin_add_columns<R, 1>(call, column);
  for (; column < call.columns; ++column)
    for (int r = 0; r < R; ++r) thin_scalar(call, r, column);
}

// The chains of `rows` rows, at most thin_rows. B has one stride of 1.
inline void thin_chains(int64_t rows, const ThinCall& call) {
  if (call.depth == 0) {
    for (int64_t i = 0; i < rows * call.columns; ++i) call.sums[i] = 0;
  } else if (call.b_col == 1) {
    rows == 1 ? thin_by_rows<1>(call) : rows == 2 ? thin_by_rows<2>(call) : thin_by_rows<3>(call);
  } else {
    rows == 1 ? thin_by_columns<1>(call) : rows == 2 ? thin_by_columns<2>(call) : thin_by_columns<3>(call);
  }
}

}  // namespace epl::cpu::EPL_SIMD
