// The transforms of Winograd's convolution (conv_winograd.h). A vector holds a pixel of neighbouring channels. Whoever
// includes it has Vector and Floats: the text for a GPU, which is made of this file too, has vectors of one lane.
#pragma once

#include "backends/cpu/kernels/conv_winograd.h"

namespace epl::cpu::EPL_SIMD::winograd {

constexpr int inputs = winograd_inputs, outputs = winograd_outputs, taps = 3;
constexpr float a = 0.625f, b = 1.5f, a2 = a * a, b2 = b * b;  // the points, but for 0 and infinity

HWY_INLINE Vector constant(float value) { return hn::Set(Floats(), value); }

// Along one dimension: inputs to positions, weights to positions, positions to outputs.
HWY_INLINE void transform_inputs(const Vector (&d)[inputs], Vector (&to)[inputs]) {
  const Vector of_a = hn::NegMulAdd(constant(a2), d[2], d[4]), of_b = hn::NegMulAdd(constant(b2), d[2], d[4]);
  const Vector odd_a = hn::NegMulAdd(constant(a2), d[1], d[3]), odd_b = hn::NegMulAdd(constant(b2), d[1], d[3]);
  to[0] = hn::MulAdd(constant(a2 * b2), d[0], hn::NegMulAdd(constant(a2 + b2), d[2], d[4]));
  to[1] = hn::MulAdd(constant(a), odd_b, of_b);
  to[2] = hn::NegMulAdd(constant(a), odd_b, of_b);
  to[3] = hn::MulAdd(constant(b), odd_a, of_a);
  to[4] = hn::NegMulAdd(constant(b), odd_a, of_a);
  to[5] = hn::MulAdd(constant(a2 * b2), d[1], hn::NegMulAdd(constant(a2 + b2), d[3], d[5]));
}
HWY_INLINE void transform_weights(const Vector (&g)[taps], Vector (&to)[inputs]) {
  constexpr float of_a = 1 / (2 * a2 * (a2 - b2)), of_b = 1 / (2 * b2 * (b2 - a2));
  const Vector even_a = hn::Mul(constant(of_a), hn::MulAdd(constant(a2), g[2], g[0]));
  const Vector even_b = hn::Mul(constant(of_b), hn::MulAdd(constant(b2), g[2], g[0]));
  to[0] = hn::Mul(constant(1 / (a2 * b2)), g[0]);
  to[1] = hn::MulAdd(constant(a * of_a), g[1], even_a);
  to[2] = hn::NegMulAdd(constant(a * of_a), g[1], even_a);
  to[3] = hn::MulAdd(constant(b * of_b), g[1], even_b);
  to[4] = hn::NegMulAdd(constant(b * of_b), g[1], even_b);
  to[5] = g[2];
}
HWY_INLINE void transform_outputs(const Vector (&m)[inputs], Vector (&to)[outputs]) {
  const Vector sum_a = hn::Add(m[1], m[2]), sum_b = hn::Add(m[3], m[4]);
  const Vector odd_a = hn::Sub(m[1], m[2]), odd_b = hn::Sub(m[3], m[4]);
  to[0] = hn::Add(m[0], hn::Add(sum_a, sum_b));
  to[1] = hn::MulAdd(constant(b), odd_b, hn::Mul(constant(a), odd_a));
  to[2] = hn::MulAdd(constant(b2), sum_b, hn::Mul(constant(a2), sum_a));
  to[3] = hn::MulAdd(constant(b2 * b), odd_b, hn::MulAdd(constant(a2 * a), odd_a, m[5]));
}

// For the gradient by the weights the outputs' gradients play weights of four taps, and the weights outputs of three.
HWY_INLINE void transform_gradients(const Vector (&g)[outputs], Vector (&to)[inputs]) {
  constexpr float of_a = 1 / (2 * a2 * (a2 - b2)), of_b = 1 / (2 * b2 * (b2 - a2));
  const Vector even_a = hn::Mul(constant(of_a), hn::MulAdd(constant(a2), g[2], g[0]));
  const Vector even_b = hn::Mul(constant(of_b), hn::MulAdd(constant(b2), g[2], g[0]));
  const Vector odd_a = hn::MulAdd(constant(a2), g[3], g[1]), odd_b = hn::MulAdd(constant(b2), g[3], g[1]);
  to[0] = hn::Mul(constant(1 / (a2 * b2)), g[0]);
  to[1] = hn::MulAdd(constant(a * of_a), odd_a, even_a);
  to[2] = hn::NegMulAdd(constant(a * of_a), odd_a, even_a);
  to[3] = hn::MulAdd(constant(b * of_b), odd_b, even_b);
  to[4] = hn::NegMulAdd(constant(b * of_b), odd_b, even_b);
  to[5] = g[3];
}
HWY_INLINE void transform_sums(const Vector (&m)[inputs], Vector (&to)[taps]) {
  const Vector sum_a = hn::Add(m[1], m[2]), sum_b = hn::Add(m[3], m[4]);
  to[0] = hn::Add(m[0], hn::Add(sum_a, sum_b));
  to[1] = hn::MulAdd(constant(b), hn::Sub(m[3], m[4]), hn::Mul(constant(a), hn::Sub(m[1], m[2])));
  to[2] = hn::MulAdd(constant(b2), sum_b, hn::MulAdd(constant(a2), sum_a, m[5]));
}

// Both dimensions: an N x N tile of vectors, as `load(row, column)` gives it, to M x M of them.
template <int N, int M, void (*transform)(const Vector (&)[N], Vector (&)[M]), class Load, class Store>
HWY_INLINE void transform_tile(Load load, Store store) {
  Vector half[M][N];
  for (int column = 0; column < N; ++column) {
    Vector from[N], to[M];
    for (int row = 0; row < N; ++row) from[row] = load(row, column);
    transform(from, to);
    for (int row = 0; row < M; ++row) half[row][column] = to[row];
  }
  for (int row = 0; row < M; ++row) {
    Vector to[M];
    transform(half[row], to);
    for (int column = 0; column < M; ++column) store(row, column, to[column]);
  }
}

}  // namespace epl::cpu::EPL_SIMD::winograd
