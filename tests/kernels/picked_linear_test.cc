// picked_linear: the bits of the products with all picked matrices laid out, and the order of its weight's gradient.
#include <cmath>

#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::picked_linear_test {
namespace {

struct Sizes {
  int64_t rows, k, n, matrices;
};
// Few rows for each matrix; many, so that runs of them are cut; more matrices than rows; sums of several blocks.
const std::vector<Sizes> all_sizes = {{64, 5, 7, 4}, {1200, 9, 6, 2}, {8, 30, 70, 50}, {24, 700, 3, 3}};

Shape weight_shape(const Sizes& s, bool transposed) {
  return transposed ? Shape{s.matrices, s.n, s.k} : Shape{s.matrices, s.k, s.n};
}

Launch picked(Tensor x, Tensor w, Tensor picks, bool transposed) {
  const TensorType y = f32_type({x.shape()[0], w.shape()[transposed ? 1 : 2]});
  return {.op = "picked_linear",
          .attributes = {{"transpose_w", transposed}},
          .inputs = {std::move(x), std::move(w), std::move(picks)},
          .outputs = {y}};
}

TEST(PickedLinear, HasTheBitsOfAProductForEachRow) {
  for (const Sizes& s : all_sizes) {
    for (const bool transposed : {false, true}) {
      const Tensor x = random_f32({s.rows, s.k}, 1), w = random_f32(weight_shape(s, transposed), 2);
      const Tensor picks = random_int(DType::i64, {s.rows}, 3, -s.matrices, s.matrices - 1);
      const Tensor y = launch_everywhere(picked(x, w, picks, transposed))[0];
      const Shape matrix = weight_shape(s, transposed);
      const Tensor all = launch_kernel({.op = "gather",
                                        .attributes = {{"axis", int64_t{0}}},
                                        .inputs = {w, picks},
                                        .outputs = {f32_type({s.rows, matrix[1], matrix[2]})}})[0];
      Tensor row(f32_type({s.rows, 1, s.k}));
      std::memcpy(row.data(), x.data(), x.bytes());
      const Tensor want = launch_kernel({.op = "matmul",
                                         .attributes = {{"transpose_a", false}, {"transpose_b", transposed}},
                                         .inputs = {row, all},
                                         .outputs = {f32_type({s.rows, 1, s.n})}})[0];
      ASSERT_EQ(0, std::memcmp(y.data(), want.data(), y.bytes())) << s.rows << " rows, transposed " << transposed;
    }
  }
}

// Of a sum whose segments are interleaved, as where two matrices lie one behind the other and each is cut over ranks,
// every segment is what a rank has by itself.
TEST(PickedLinear, InterleavedSegmentsHaveTheBitsOfTheirSums) {
  const Sizes s{40, 24, 5, 3};
  const Units units(4, 2);
  for (const bool transposed : {false, true}) {
    const Tensor x = random_f32({s.rows, s.k}, 1), w = random_f32(weight_shape(s, transposed), 2);
    const Tensor picks = random_int(DType::i64, {s.rows}, 3, 0, s.matrices - 1);
    Launch full = picked(x, w, picks, transposed);
    full.units = units;
    const Tensor y = launch_everywhere(full)[0];
    std::vector<Tensor> parts;
    for (int64_t u = 0; u < units.count; ++u) {
      const Sizes own{s.rows, s.k / units.count, s.n, s.matrices};
      Tensor some_x(f32_type({s.rows, own.k})), some_w(f32_type(weight_shape(own, transposed)));
      for (int64_t i = 0; i < own.k; ++i) {
        const int64_t from = units.position(u * own.k + i, s.k);
        for (int64_t row = 0; row < s.rows; ++row) some_x.set(row * own.k + i, x.get(row * s.k + from));
        for (int64_t at = 0; at < s.matrices * s.n; ++at) {
          const int64_t e = at / s.n, j = at % s.n;
          if (transposed) {
            some_w.set((e * s.n + j) * own.k + i, w.get((e * s.n + j) * s.k + from));
          } else {
            some_w.set((e * own.k + i) * s.n + j, w.get((e * s.k + from) * s.n + j));
          }
        }
      }
      parts.push_back(launch_kernel(picked(some_x, some_w, picks, transposed))[0]);
    }
    for (int64_t i = 0; i < s.rows * s.n; ++i) {
      const auto of = [&](size_t u) { return parts[u].as<float>()[static_cast<size_t>(i)]; };
      ASSERT_EQ(y.as<float>()[static_cast<size_t>(i)], (of(0) + of(1)) + (of(2) + of(3))) << i;
    }
  }
}

TEST(PickedLinear, IndicesThatAreNotThere) {
  const Tensor y = launch_everywhere(
      picked(random_f32({4, 3}, 1), random_f32({2, 3, 5}, 2), Tensor::from_ints({1, 2, -2, -3}), false))[0];
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(std::isnan(y.get(i)), i / 5 % 2 == 1) << i;
}

Launch gradient(Tensor x, Tensor dy, Tensor picks, int64_t matrices, bool transposed, Units units) {
  const int64_t k = x.shape()[1], n = dy.shape()[1];
  return {.op = "picked_linear_grad_weight",
          .attributes = {{"transpose_w", transposed}, {"size", matrices}},
          .inputs = {std::move(x), std::move(dy), std::move(picks)},
          .outputs = {f32_type(transposed ? Shape{matrices, n, k} : Shape{matrices, k, n})},
          .units = units};
}

// The order as picked_linear.cc and gemm.h state it.
float in_order(const Tensor& x, const Tensor& dy, const Tensor& picks, const Sizes& s, int64_t e, int64_t i, int64_t j,
               Units units) {
  std::vector<float> sums(static_cast<size_t>(units.count), 0.0f);
  for (int64_t u = 0; u < units.count; ++u) {
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < s.rows; ++row) {
      const int64_t at = picks.get_int(row);
      if (units.of(row, s.rows) == u && (at < 0 ? at + s.matrices : at) == e) rows.push_back(row);
    }
    for (size_t begin = 0; begin < rows.size(); begin += 256) {
      float chain = 0;
      for (size_t r = begin; r < std::min(rows.size(), begin + 256); ++r) {
        chain = std::fma(x.as<float>()[static_cast<size_t>(rows[r] * s.k + i)],
                         dy.as<float>()[static_cast<size_t>(rows[r] * s.n + j)], chain);
      }
      sums[static_cast<size_t>(u)] = begin == 0 ? chain : sums[static_cast<size_t>(u)] + chain;
    }
  }
  for (size_t step = 1; step < sums.size(); step *= 2) {
    for (size_t u = 0; u + step < sums.size(); u += 2 * step) sums[u] += sums[u + step];
  }
  return sums[0];
}

TEST(PickedLinear, AddsGradientsInOrder) {
  for (const Sizes& s : all_sizes) {
    for (const bool transposed : {false, true}) {
      for (const Units units : {Units(1), Units(4), Units(2, 2)}) {
        const Tensor x = random_f32({s.rows, s.k}, 1), dy = random_f32({s.rows, s.n}, 2);
        const Tensor picks = random_int(DType::i32, {s.rows}, 3, -s.matrices - 1, s.matrices);  // some are not there
        const Tensor dw = launch_everywhere(gradient(x, dy, picks, s.matrices, transposed, units))[0];
        for (int64_t e = 0; e < s.matrices; ++e) {
          for (int64_t i = 0; i < s.k; ++i) {
            for (int64_t j = 0; j < s.n; ++j) {
              const int64_t at = transposed ? (e * s.n + j) * s.k + i : (e * s.k + i) * s.n + j;
              ASSERT_EQ(dw.as<float>()[static_cast<size_t>(at)], in_order(x, dy, picks, s, e, i, j, units))
                  << s.rows << " rows, " << units.count << " units, element " << at;
            }
          }
        }
      }
    }
  }
}

TEST(PickedLinear, HalfTheUnitsAreASubtree) {
  const Tensor x = random_f32({64, 6}, 1), dy = random_f32({64, 9}, 2), picks = random_int(DType::i64, {64}, 3, 0, 2);
  const auto half = [&](int64_t which) {
    const auto part = [&](const Tensor& all) {
      Shape shape = all.shape();
      shape[0] /= 2;
      Tensor some(TensorType{all.dtype(), shape});
      std::memcpy(some.data(), static_cast<const std::byte*>(all.data()) + which * some.bytes(),
                  static_cast<size_t>(some.bytes()));
      return some;
    };
    return launch_kernel(gradient(part(x), part(dy), part(picks), 3, false, 4))[0];
  };
  const Tensor full = launch_kernel(gradient(x, dy, picks, 3, false, 8))[0], a = half(0), b = half(1);
  for (size_t i = 0; i < 3 * 6 * 9; ++i) EXPECT_EQ(full.as<float>()[i], a.as<float>()[i] + b.as<float>()[i]);
}

// A gradient with so many columns that its rows are summed a few at a time.
TEST(PickedLinear, GradientsOfLargeMatrices) {
  const Sizes s{16, 11, 30000, 2};
  const Tensor x = random_f32({s.rows, s.k}, 1), dy = random_f32({s.rows, s.n}, 2);
  const Tensor picks = random_int(DType::i64, {s.rows}, 3, 0, 1);
  const Tensor dw = launch_everywhere(gradient(x, dy, picks, s.matrices, false, 8))[0];
  for (int64_t at = 0; at < dw.elements(); at += 997) {
    const int64_t j = at % s.n, i = at / s.n % s.k, e = at / s.n / s.k;
    ASSERT_EQ(dw.as<float>()[static_cast<size_t>(at)], in_order(x, dy, picks, s, e, i, j, 8)) << at;
  }
}

}  // namespace
}  // namespace epl::cpu::picked_linear_test
