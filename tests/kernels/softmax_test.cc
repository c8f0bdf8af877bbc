// Softmax, cross-entropy and their gradients against double.
#include <cmath>

#include "tests/kernels/canonical.h"
#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::softmax_test {
namespace {

constexpr double precision = 3e-6;

std::vector<double> exact_softmax(const Tensor& x, int64_t row, int64_t n) {
  std::vector<double> y(n);
  double largest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, x.get(row * n + i));
  for (int64_t i = 0; i < n; ++i) sum += y[i] = std::exp(x.get(row * n + i) - largest);
  for (double& v : y) v /= sum;
  return y;
}

Launch along_rows(const char* op, std::vector<Tensor> inputs, int64_t axis = -1) {
  TensorType out = inputs[0].type();
  return {.op = op, .attributes = {{"axis", axis}}, .inputs = std::move(inputs), .outputs = {out}};
}

TEST(Softmax, AgreesWithDouble) {
  for (int64_t n : {1, 3, 16, 17, 100, 1024, 1025, 5000}) {
    Tensor x = random_f32({7, n}, 1, -20, 20), dy = random_f32({7, n}, 2);
    Tensor y = launch_everywhere(along_rows("softmax", {x}))[0],
           log_y = launch_everywhere(along_rows("log_softmax", {x}))[0];
    Tensor dx = launch_everywhere(along_rows("softmax_grad", {dy, y}))[0];
    Tensor log_dx = launch_everywhere(along_rows("log_softmax_grad", {dy, log_y}))[0];
    for (int64_t r = 0; r < 7; ++r) {
      std::vector<double> p = exact_softmax(x, r, n);
      double dot = 0, sum = 0;
      for (int64_t i = 0; i < n; ++i) dot += p[i] * dy.get(r * n + i), sum += dy.get(r * n + i);
      for (int64_t i = 0; i < n; ++i) {
        int64_t at = r * n + i;
        ASSERT_TRUE(near(y.get(at), p[i], precision, 1e-30)) << n << " " << y.get(at) << " " << p[i];
        ASSERT_TRUE(near(log_y.get(at), std::log(p[i]), precision, 1e-6));
        ASSERT_TRUE(near(dx.get(at), p[i] * (dy.get(at) - dot), 1e-5, 1e-6));
        ASSERT_TRUE(near(log_dx.get(at), dy.get(at) - p[i] * sum, 1e-5, 3e-6));
      }
    }
  }
}

TEST(Softmax, OverItsOperand) {
  for (const char* op : {"softmax", "log_softmax"}) {
    Launch launch = along_rows(op, {random_f32({5, 300}, 1)});
    Tensor apart = launch_kernel(launch)[0];
    launch.aliases = {{0, 0}};
    EXPECT_TRUE(identical(apart, launch_kernel(launch)[0]));
  }
  for (const char* op : {"softmax_grad", "log_softmax_grad"}) {
    for (int over : {0, 1}) {
      Launch launch = along_rows(op, {random_f32({5, 300}, 1), random_f32({5, 300}, 2)});
      Tensor apart = launch_kernel(launch)[0];
      launch.aliases = {{over, 0}};
      EXPECT_TRUE(identical(apart, launch_kernel(launch)[0]));
    }
  }
}

// The same rows, transposed: the same bits.
Tensor transposed(const Tensor& x) {  // [a, b, c] -> [a, c, b]
  int64_t a = x.shape()[0], b = x.shape()[1], c = x.shape()[2];
  Tensor y(TensorType{x.dtype(), {a, c, b}});
  for (int64_t i = 0; i < a; ++i) {
    for (int64_t j = 0; j < b; ++j) {
      for (int64_t k = 0; k < c; ++k) y.set((i * c + k) * b + j, x.get((i * b + j) * c + k));
    }
  }
  return y;
}

TEST(Softmax, AnyAxis) {
  Tensor x = random_f32({3, 40, 57}, 1), z = random_f32({3, 40, 57}, 2);
  for (const char* op : {"softmax", "log_softmax"}) {
    Tensor inner = launch_kernel(along_rows(op, {x}))[0];
    Launch launch = along_rows(op, {transposed(x)}, 1);
    EXPECT_TRUE(identical(transposed(inner), launch_everywhere(launch)[0])) << op;
    launch.aliases = {{0, 0}};
    EXPECT_TRUE(identical(transposed(inner), launch_kernel(launch)[0])) << op;
  }
  for (const char* op : {"softmax_grad", "log_softmax_grad"}) {
    Tensor inner = launch_kernel(along_rows(op, {x, z}))[0];
    Launch launch = along_rows(op, {transposed(x), transposed(z)}, 1);
    EXPECT_TRUE(identical(transposed(inner), launch_everywhere(launch)[0])) << op;
    launch.aliases = {{1, 0}};
    EXPECT_TRUE(identical(transposed(inner), launch_kernel(launch)[0])) << op;
  }
}

TEST(Softmax, RowsOfMinusInfinityAndNaN) {
  Tensor x = random_f32({3, 20}, 1);
  for (int i = 0; i < 19; ++i) x.as<float>()[i] = -INFINITY;
  x.as<float>()[25] = NAN;
  Tensor y = launch_everywhere(along_rows("softmax", {x}))[0];
  EXPECT_EQ(y.get(0), 0);
  EXPECT_EQ(y.get(19), 1);
  EXPECT_TRUE(std::isnan(y.get(20)));
  EXPECT_FALSE(std::isnan(y.get(45)));
}

Launch cross_entropy(Tensor x, Tensor target, int64_t ignored, int64_t units) {
  TensorType lse = f32_type(target.shape());
  return {.op = "cross_entropy",
          .attributes = {{"axis", int64_t{-1}}, {"ignore_index", ignored}},
          .inputs = {std::move(x), std::move(target)},
          .outputs = {f32_type({}), lse},
          .units = units};
}

TEST(CrossEntropy, AgreesWithDouble) {
  for (int64_t classes : {1, 10, 1000, 3001}) {
    for (DType type : {DType::i64, DType::i32}) {
      Tensor x = random_f32({8, 6, classes}, 1, -8, 8), target = random_int(type, {8, 6}, 2, 0, classes - 1);
      target.set_int(5, -100);
      target.set_int(17, -100);
      std::vector<Tensor> got = launch_everywhere(cross_entropy(x, target, -100, 4));
      Tensor scale = Tensor::from_floats({}, {0.25f});
      Launch backward = {.op = "cross_entropy_grad",
                         .attributes = {{"axis", int64_t{-1}}, {"ignore_index", int64_t{-100}}},
                         .inputs = {x, target, scale, got[1]},
                         .outputs = {x.type()}};
      Tensor dx = launch_everywhere(backward)[0];
      backward.aliases = {{0, 0}};
      EXPECT_TRUE(identical(dx, launch_kernel(backward)[0]));
      double loss = 0;
      for (int64_t i = 0; i < 48; ++i) {
        std::vector<double> p = exact_softmax(x, i, classes);
        int64_t t = target.get_int(i);
        double lse = x.get(i * classes) - std::log(p[0]);
        ASSERT_TRUE(near(got[1].get(i), lse, 1e-6, 1e-6));
        if (t >= 0) loss -= std::log(p[t]);
        for (int64_t k = 0; k < classes; ++k) {
          double want = t < 0 ? 0 : (p[k] - (k == t)) * 0.25;
          ASSERT_TRUE(near(dx.get(i * classes + k), want, 1e-5, 1e-6)) << i << " " << k;
        }
      }
      ASSERT_TRUE(near(got[0].get(0), loss, 1e-6, 1e-5)) << got[0].get(0) << " " << loss;
    }
  }
}

// The loss is the canonical sum of its terms, each term the loss of a position alone.
TEST(CrossEntropy, SumsInTheCanonicalOrder) {
  Tensor x = random_f32({64, 50}, 1, -3, 3), target = random_int(DType::i64, {64}, 2, 0, 49);
  std::vector<float> terms;
  for (int64_t i = 0; i < 64; ++i) {
    Tensor row(f32_type({1, 50}));
    std::memcpy(row.data(), x.as<float>().data() + i * 50, 200);
    terms.push_back(
        launch_kernel(cross_entropy(row, Tensor::from_ints({target.get_int(i)}), -100, 1))[0].as<float>()[0]);
  }
  for (int64_t units : {1, 2, 8}) {
    Launch launch = cross_entropy(x, target, -100, units);
    EXPECT_EQ(launch_everywhere(launch)[0].as<float>()[0], canonical(terms, units, canonical_sum));
    launch.wanted = {true, false};
    EXPECT_EQ(launch_kernel(launch)[0].as<float>()[0], canonical(terms, units, canonical_sum));
  }
}

TEST(CrossEntropy, AnyAxis) {
  Tensor x = random_f32({4, 30, 21}, 1), target = random_int(DType::i64, {4, 30}, 2, -1, 20),
         scale = Tensor::from_floats({}, {0.5f});
  Launch inner = cross_entropy(x, target, -1, 2), outer = cross_entropy(transposed(x), target, -1, 2);
  outer.attributes.set("axis", int64_t{1});
  std::vector<Tensor> a = launch_kernel(inner), b = launch_everywhere(outer);
  EXPECT_TRUE(identical(a[0], b[0]));
  EXPECT_TRUE(identical(a[1], b[1]));
  Launch backward = {.op = "cross_entropy_grad",
                     .attributes = inner.attributes,
                     .inputs = {x, target, scale, a[1]},
                     .outputs = {x.type()}};
  Tensor dx = launch_kernel(backward)[0];
  backward.attributes = outer.attributes;
  backward.inputs[0] = transposed(x);
  backward.outputs[0] = backward.inputs[0].type();
  EXPECT_TRUE(identical(transposed(dx), launch_everywhere(backward)[0]));
}

// No product of a gradient is subnormal, which would take a processor a hundred times as long.
TEST(CrossEntropy, WhatIsHardlyLikelyHasNoGradient) {
  Tensor x = random_f32({2, 400}, 1, -120, 0);
  x.set(0, 0);
  x.set(400, NAN);
  std::vector<Tensor> got = launch_everywhere(cross_entropy(x, Tensor::from_ints({1, 2}), -100, 1));
  Launch backward = {.op = "cross_entropy_grad",
                     .attributes = {{"axis", int64_t{-1}}, {"ignore_index", int64_t{-100}}},
                     .inputs = {x, Tensor::from_ints({1, 2}), Tensor::from_floats({}, {1.0f}), got[1]},
                     .outputs = {x.type()}};
  const Tensor dx = launch_everywhere(backward)[0];
  int zeros = 0, small = 0;
  for (int64_t i = 0; i < 400; ++i) {
    const double p = std::abs(dx.get(i));
    EXPECT_TRUE(p == 0 || p >= 0x1p-96) << i << ": " << p;
    zeros += p == 0;
    small += p > 0 && p < 0x1p-80;
  }
  EXPECT_GT(zeros, 100);
  EXPECT_GT(small, 10);
  EXPECT_TRUE(std::isnan(dx.get(401))) << "what is not a number stays so";
}

TEST(CrossEntropy, TargetsThatAreNoClassGiveNaN) {
  Tensor x = random_f32({2, 5}, 1);
  for (int64_t wrong : {5, -1, 1000000}) {
    Tensor target = Tensor::from_ints({1, wrong});
    std::vector<Tensor> got = launch_everywhere(cross_entropy(x, target, -100, 1));
    EXPECT_TRUE(std::isnan(got[0].get(0)));
    Launch backward = {.op = "cross_entropy_grad",
                       .attributes = {{"axis", int64_t{-1}}, {"ignore_index", int64_t{-100}}},
                       .inputs = {x, target, Tensor::from_floats({}, {1.0f}), got[1]},
                       .outputs = {x.type()}};
    Tensor dx = launch_everywhere(backward)[0];
    EXPECT_FALSE(std::isnan(dx.get(0)));
    EXPECT_TRUE(std::isnan(dx.get(7)));
  }
}

TEST(CountValid, Counts) {
  for (DType type : {DType::i64, DType::i32}) {
    Tensor target = random_int(type, {8, 100}, 3, -1, 3);
    double want = 0;
    for (int64_t i = 0; i < 800; ++i) want += target.get_int(i) != -1;
    Launch launch = {.op = "count_valid",
                     .attributes = {{"ignore_index", int64_t{-1}}},
                     .inputs = {target},
                     .outputs = {f32_type({})},
                     .units = 8};
    EXPECT_EQ(launch_everywhere(launch)[0].get(0), want);
  }
}

}  // namespace
}  // namespace epl::cpu::softmax_test
