// The rows of matmul, linear and linear_grad_weight against sums in double.
#include <cmath>

#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::product_test {
namespace {

// Element of a matrix stored plainly or transposed.
double at(const Tensor& t, int64_t matrix, int64_t rows, int64_t columns, bool transposed, int64_t i, int64_t j) {
  return t.get(matrix * rows * columns + (transposed ? j * rows + i : i * columns + j));
}

void expect_matmul(const Shape& a_batch, const Shape& b_batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  Shape a = a_batch, b = b_batch, batch;
  a.insert(a.end(), {ta ? k : m, ta ? m : k});
  b.insert(b.end(), {tb ? n : k, tb ? k : n});
  const size_t dims = std::max(a_batch.size(), b_batch.size());
  const auto size_of = [&](const Shape& s, size_t d) { return d + s.size() < dims ? 1 : s[d + s.size() - dims]; };
  for (size_t d = 0; d < dims; ++d) batch.push_back(std::max(size_of(a_batch, d), size_of(b_batch, d)));
  Shape y = batch;
  y.insert(y.end(), {m, n});
  const Tensor x = random_f32(a, 1), w = random_f32(b, 2);
  const std::vector<Tensor> got = launch_everywhere({.op = "matmul",
                                                     .attributes = {{"transpose_a", ta}, {"transpose_b", tb}},
                                                     .inputs = {x, w},
                                                     .outputs = {f32_type(y)}});
  ASSERT_EQ(got.size(), 1u);
  for (int64_t e = 0; e < element_count(batch); ++e) {
    int64_t rest = e, x_at = 0, w_at = 0, x_step = 1, w_step = 1;
    for (size_t d = dims; d-- > 0;) {
      const int64_t i = rest % batch[d];
      rest /= batch[d];
      if (size_of(a_batch, d) > 1) x_at += i * x_step;
      if (size_of(b_batch, d) > 1) w_at += i * w_step;
      x_step *= size_of(a_batch, d);
      w_step *= size_of(b_batch, d);
    }
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p) sum += at(x, x_at, m, k, ta, i, p) * at(w, w_at, k, n, tb, p, j);
        ASSERT_TRUE(near(got[0].get((e * m + i) * n + j), sum, 1e-5, 1e-5)) << e << " " << i << " " << j;
      }
  }
}

TEST(Product, MatmulTransposesAndBroadcasts) {
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      expect_matmul({}, {}, 7, 19, 33, ta, tb);
      expect_matmul({3}, {3}, 9, 4, 300, ta, tb);
      expect_matmul({2, 3}, {}, 5, 6, 7, ta, tb);
      expect_matmul({}, {4}, 5, 6, 7, ta, tb);
      expect_matmul({2, 1, 3}, {4, 1}, 3, 17, 5, ta, tb);
      expect_matmul({1, 3}, {2, 1}, 8, 8, 8, ta, tb);
      expect_matmul({2, 3}, {2, 3}, 1, 20, 9, ta, tb);
    }
}

TEST(Product, MatmulOfVectors) {
  const Attributes plain = {{"transpose_a", false}, {"transpose_b", false}};
  const Tensor v = random_f32({6}, 1), w = random_f32({2, 6, 4}, 2), u = random_f32({2, 4, 6}, 3);
  const Tensor dot =
      launch_everywhere({.op = "matmul", .attributes = plain, .inputs = {v, v}, .outputs = {f32_type({})}})[0];
  const Tensor left =
      launch_everywhere({.op = "matmul", .attributes = plain, .inputs = {v, w}, .outputs = {f32_type({2, 4})}})[0];
  const Tensor right =
      launch_everywhere({.op = "matmul", .attributes = plain, .inputs = {u, v}, .outputs = {f32_type({2, 4})}})[0];
  double sum = 0;
  for (int64_t k = 0; k < 6; ++k) sum += v.get(k) * v.get(k);
  EXPECT_TRUE(near(dot.get(0), sum, 1e-5));
  for (int64_t e = 0; e < 8; ++e) {
    double l = 0, r = 0;
    for (int64_t k = 0; k < 6; ++k) {
      l += v.get(k) * w.get(e / 4 * 24 + k * 4 + e % 4);
      r += u.get(e * 6 + k) * v.get(k);
    }
    EXPECT_TRUE(near(left.get(e), l, 1e-5, 1e-5));
    EXPECT_TRUE(near(right.get(e), r, 1e-5, 1e-5));
  }
}

TEST(Product, MoreThanThreeRunsOfBatchesAreRefused) {
  const KernelQuery q = query_of({.op = "matmul",
                                  .attributes = {{"transpose_a", false}, {"transpose_b", false}},
                                  .inputs = {random_f32({2, 1, 2, 1, 2, 3}, 1), random_f32({1, 2, 1, 2, 3, 2}, 2)},
                                  .outputs = {f32_type({2, 2, 2, 2, 2, 2})}});
  const Status refused = prepare(kernel_table().rows("matmul").front(), q).status();
  EXPECT_NE(refused.message().find("broadcast"), std::string::npos) << refused.to_string();
}

TEST(Product, Linear) {
  for (bool transposed : {false, true})
    for (bool biased : {false, true})
      for (int64_t rows : {1, 3, 50}) {
        const int64_t k = 40, n = 21;
        const Tensor x = random_f32({rows, 2, k}, 1), w = random_f32(transposed ? Shape{n, k} : Shape{k, n}, 2),
                     bias = random_f32({n}, 3);
        const Tensor y =
            launch_everywhere({.op = "linear",
                               .attributes = {{"transpose_w", transposed}},
                               .inputs = biased ? std::vector<Tensor>{x, w, bias} : std::vector<Tensor>{x, w},
                               .outputs = {f32_type({rows, 2, n})}})[0];
        for (int64_t i = 0; i < 2 * rows; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = biased ? bias.get(j) : 0;
            for (int64_t p = 0; p < k; ++p)
              sum += at(x, 0, 2 * rows, k, false, i, p) * at(w, 0, k, n, transposed, p, j);
            ASSERT_TRUE(near(y.get(i * n + j), sum, 1e-5, 1e-5)) << i << " " << j;
          }
      }
}

// The gradient of a weight over 8 units is the tree over its parts, whichever way the weight lies.
TEST(Product, LinearGradWeightSumsUnitsByTheTree) {
  const int64_t rows = 8 * 3 * 5, k = 13, n = 18;
  const Tensor x = random_f32({24, 5, k}, 1), dy = random_f32({24, 5, n}, 2);
  const auto gradient = [&](const Tensor& a, const Tensor& b, bool transposed, int64_t units) {
    return launch_everywhere({.op = "linear_grad_weight",
                              .attributes = {{"transpose_w", transposed}},
                              .inputs = {a, b},
                              .outputs = {f32_type(transposed ? Shape{n, k} : Shape{k, n})},
                              .units = units})[0];
  };
  const Tensor full = gradient(x, dy, false, 8), turned = gradient(x, dy, true, 8);
  const auto part = [&](const Tensor& t, int64_t first, int64_t count) {
    const int64_t width = t.shape().back();
    Tensor run(f32_type({count * 15, width}));
    std::memcpy(run.data(), t.as<float>().data() + first * 15 * width, run.bytes());
    return run;
  };
  const Tensor low = gradient(part(x, 0, 4), part(dy, 0, 4), false, 4),
               high = gradient(part(x, 4, 4), part(dy, 4, 4), false, 4);
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t row = 0; row < rows; ++row)
        sum += at(x, 0, rows, k, false, row, i) * at(dy, 0, rows, n, false, row, j);
      const float value = full.as<float>()[i * n + j];
      ASSERT_TRUE(near(value, sum, 1e-5, 1e-5)) << i << " " << j;
      EXPECT_EQ(value, turned.as<float>()[j * k + i]);
      EXPECT_EQ(value, low.as<float>()[i * n + j] + high.as<float>()[i * n + j]);
    }
}

}  // namespace
}  // namespace epl::cpu::product_test
