// What is chosen along an axis, equal elements and NaN included, and running sums, in more rows than one task takes.
#include <cmath>
#include <limits>

#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::along_axis_test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

std::vector<Tensor> top_k(const Tensor& x, int64_t k, int64_t axis, bool largest) {
  Shape shape = x.shape();
  shape[static_cast<size_t>(axis)] = k;
  return launch_everywhere({.op = "top_k",
                            .attributes = {{"k", k}, {"axis", axis}, {"largest", largest}},
                            .inputs = {x},
                            .outputs = {{x.dtype(), shape}, {DType::i64, shape}}});
}

Tensor arg(const std::string& op, const Tensor& x, int64_t axis, bool last) {
  Shape shape = x.shape();
  shape[static_cast<size_t>(axis)] = 1;
  return launch_everywhere({.op = op,
                            .attributes = {{"axis", axis}, {"keep", true}, {"last", last}},
                            .inputs = {x},
                            .outputs = {{DType::i64, shape}}})[0];
}

// Many equal elements, in more rows than one task takes.
TEST(TopK, TakesEqualElementsInTheirOrder) {
  for (const DType type : {DType::f32, DType::i64, DType::bf16}) {
    for (const int64_t axis : {0, 1, 2}) {
      const Tensor x = random_int(type, {20, 30, 40}, 3, 0, 6);
      const int64_t size = x.shape()[static_cast<size_t>(axis)], inner = axis == 0 ? 1200 : axis == 1 ? 40 : 1;
      for (const bool largest : {true, false}) {
        const auto out = top_k(x, 9, axis, largest);
        for (int64_t row = 0; row < x.elements() / size; ++row) {
          const auto element = [&](int64_t i, int64_t n) { return (row / inner * n + i) * inner + row % inner; };
          double before = largest ? 7 : -1;
          int64_t position = -1;
          for (int64_t i = 0; i < 9; ++i) {
            const double value = out[0].get(element(i, 9));
            const int64_t at = out[1].get_int(element(i, 9));
            ASSERT_EQ(x.get(element(at, size)), value);
            ASSERT_TRUE(value == before ? at > position : largest ? value < before : value > before);
            // Nothing that would come between was left out.
            for (int64_t other = 0; other < size; ++other) {
              const double there = x.get(element(other, size));
              const bool after_last = there == before ? other > position : largest ? there < before : there > before;
              const bool before_this = there == value ? other < at : largest ? there > value : there < value;
              ASSERT_FALSE(after_last && before_this) << other;
            }
            before = value;
            position = at;
          }
        }
      }
    }
  }
}

TEST(TopK, ANaNIsLargerThanEveryNumber) {
  const Tensor x = Tensor::from_floats({6}, {1, nan, INFINITY, 2, nan, -INFINITY});
  const auto largest = top_k(x, 6, 0, true), smallest = top_k(x, 6, 0, false);
  const int64_t down[] = {1, 4, 2, 3, 0, 5}, up[] = {5, 0, 3, 2, 1, 4};
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(largest[1].get_int(i), down[i]) << i;
    EXPECT_EQ(smallest[1].get_int(i), up[i]) << i;
  }
}

TEST(TopK, ComparesIntegersExactly) {
  const int64_t large = int64_t{1} << 60;
  EXPECT_EQ(top_k(Tensor::from_ints({large, large + 2, large + 1}), 1, 0, true)[1].get_int(0), 1);
  EXPECT_EQ(arg("arg_max", Tensor::from_ints({large, large + 2, large + 1}), 0, true).get_int(0), 1);
  EXPECT_EQ(arg("arg_min", Tensor::from_ints({large + 1, large + 2, large}), 0, false).get_int(0), 2);
}

TEST(ArgMax, TakesTheFirstOrTheLastOfEquals) {
  for (const int64_t axis : {0, 1, 2}) {
    const Tensor x = random_int(DType::f32, {30, 40, 50}, 5, 0, 20);
    const int64_t size = x.shape()[static_cast<size_t>(axis)], inner = axis == 0 ? 2000 : axis == 1 ? 50 : 1;
    for (const char* op : {"arg_max", "arg_min"}) {
      const double sign = op == std::string("arg_max") ? 1 : -1;
      const Tensor first = arg(op, x, axis, false), last = arg(op, x, axis, true);
      for (int64_t row = 0; row < x.elements() / size; ++row) {
        const auto at = [&](int64_t i) { return sign * x.get((row / inner * size + i) * inner + row % inner); };
        int64_t from = 0, to = 0;
        for (int64_t i = 1; i < size; ++i) {
          if (at(i) > at(from)) from = i;
          if (at(i) >= at(to)) to = i;
        }
        ASSERT_EQ(first.get_int(row), from);
        ASSERT_EQ(last.get_int(row), to);
      }
    }
  }
}

// As the ops' references have it: a NaN is not larger than what came before, nor is anything larger than a first one.
TEST(ArgMax, ANaNIsNotLarger) {
  EXPECT_EQ(arg("arg_max", Tensor::from_floats({4}, {1, nan, 3, 2}), 0, false).get_int(0), 2);
  EXPECT_EQ(arg("arg_max", Tensor::from_floats({4}, {nan, 1, 3, 2}), 0, false).get_int(0), 0);
  EXPECT_EQ(arg("arg_min", Tensor::from_floats({4}, {2, nan, 1, 3}), 0, false).get_int(0), 2);
}

TEST(CumSum, GoesAlongAnyAxis) {
  for (const int64_t axis : {0, 1, 2}) {
    for (const bool reverse : {false, true}) {
      for (const bool exclusive : {false, true}) {
        const Tensor x = random_int(DType::i32, {30, 40, 50}, 5, -9, 9);
        const Tensor y =
            launch_everywhere({.op = "cum_sum",
                               .attributes = {{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}},
                               .inputs = {x},
                               .outputs = {x.type()}})[0];
        const int64_t size = x.shape()[static_cast<size_t>(axis)], inner = axis == 0 ? 2000 : axis == 1 ? 50 : 1;
        for (int64_t row = 0; row < x.elements() / size; ++row) {
          const auto at = [&](int64_t i) {
            return (row / inner * size + (reverse ? size - 1 - i : i)) * inner + row % inner;
          };
          int64_t sum = 0;
          for (int64_t i = 0; i < size; ++i) {
            const int64_t before = sum;
            sum += x.get_int(at(i));
            ASSERT_EQ(y.get_int(at(i)), exclusive ? before : sum);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace epl::cpu::along_axis_test
