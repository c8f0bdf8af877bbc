// Reductions against the definition of their order, written with scalars.
#include <cmath>

#include "tests/kernels/canonical.h"
#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::reduce_test {
namespace {

using Op = ReductionOp;

const Op ops[] = {
    {"sum", 0, [](float a, float b) { return a + b; }},
    {"max_reduce", -INFINITY, [](float a, float b) { return a > b || std::isnan(a) ? a : b; }},
    {"min_reduce", INFINITY, [](float a, float b) { return a < b || std::isnan(a) ? a : b; }},
    {"prod_reduce", 1, [](float a, float b) { return a * b; }},
};

Shape reduced_shape(Shape shape, const Ints& axes, bool keep) {
  std::vector<bool> folded(shape.size(), false);
  for (int64_t a : axes) folded[a < 0 ? a + shape.size() : a] = true;
  Shape out;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!folded[d]) out.push_back(shape[d]);
    if (folded[d] && keep) out.push_back(1);
  }
  return out;
}

std::vector<float> expected(const Tensor& x, const Ints& axes, int64_t units, const Op& op) {
  Shape kept = reduced_shape(x.shape(), axes, true), strides = row_major_strides(kept);
  std::vector<std::vector<float>> values(element_count(kept));
  for (int64_t e = 0; e < x.elements(); ++e) {
    int64_t rest = e, at = 0;
    for (int d = static_cast<int>(kept.size()) - 1; d >= 0; --d) {
      at += kept[d] == 1 ? 0 : rest % x.shape()[d] * strides[d];
      rest /= x.shape()[d];
    }
    values[at].push_back(static_cast<float>(x.get(e)));
  }
  std::vector<float> out;
  for (const auto& v : values) out.push_back(canonical(v, units, op));
  return out;
}

Launch reduction(const char* name, Tensor x, Ints axes, int64_t units = 1, bool keep = false) {
  Shape out = reduced_shape(x.shape(), axes, keep);
  return {.op = name,
          .attributes = {{"axes", axes}, {"keep", keep}},
          .inputs = {std::move(x)},
          .outputs = {f32_type(out)},
          .units = units};
}

void check(const Shape& shape, const Ints& axes, int64_t units = 1) {
  for (const Op& op : ops) {
    if (units > 1 && std::string(op.name) != "sum") continue;
    Tensor x = random_f32(shape, 7, 0.5, 1.4);
    std::vector<float> want = expected(x, axes, units, op);
    Tensor got = launch_everywhere(reduction(op.name, x, axes, units))[0];
    ASSERT_EQ(got.elements(), static_cast<int64_t>(want.size()));
    for (size_t i = 0; i < want.size(); ++i) {
      float value = got.as<float>()[i];
      ASSERT_EQ(std::memcmp(&value, &want[i], 4), 0) << op.name << " of " << cat(shape) << " over " << cat(axes)
                                                     << " element " << i << ": " << value << ", expected " << want[i];
    }
  }
}

TEST(Reduce, RowsOfEveryLength) {
  for (int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 100, 1023, 1024, 1025, 2048, 3000, 4096, 5000, 9999}) check({3, n}, {1});
}
TEST(Reduce, Columns) {
  for (int64_t n : {1, 5, 16, 33, 1024, 1025, 3100}) {
    check({n, 1}, {0});
    check({n, 7}, {0});
    check({n, 300}, {0});
  }
}
TEST(Reduce, AnyAxes) {
  check({2, 3, 4, 5}, {0, 2});
  check({2, 3, 4, 5}, {1, 3});
  check({2, 3, 4, 5}, {0, 1, 2, 3});
  check({2, 3, 4, 5}, {-1, 0});
  check({4, 3, 7, 7}, {0, 2, 3});
  check({9, 5, 20, 20}, {0, 2, 3});
  check({6, 1, 40, 300}, {0, 2});
  check({5, 1, 1, 3}, {1, 2});
  check({200000}, {0});
}
TEST(Reduce, Units) {
  for (int64_t units : {1, 2, 4, 8}) {
    check({16, 40}, {0}, units);
    check({16, 9, 40}, {0, 1}, units);
    check({16, 3, 5, 5}, {0, 2, 3}, units);
    check({8 * 1500}, {0}, units);
    check({8 * 1100, 20}, {0}, units);
  }
}

// The sum of half the units is one half of the tree.
TEST(Reduce, AnAlignedRunOfUnitsIsASubtree) {
  Tensor x = random_f32({16, 21, 30}, 3);
  auto half = [&](int64_t which) {
    Tensor part(f32_type({8, 21, 30}));
    std::memcpy(part.data(), x.as<float>().data() + which * part.elements(), part.bytes());
    return launch_kernel(reduction("sum", part, {0, 1}, 4))[0];
  };
  Tensor full = launch_kernel(reduction("sum", x, {0, 1}, 8))[0], a = half(0), b = half(1);
  for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(full.as<float>()[i], a.as<float>()[i] + b.as<float>()[i]);
}

// One column alone is, in memory, a contiguous row; its bits must not change.
TEST(Reduce, CutsOfWhatStaysDoNotChangeBits) {
  Tensor x = random_f32({1500, 37}, 3), column(f32_type({1500, 1}));
  for (int64_t r = 0; r < 1500; ++r) column.as<float>()[r] = x.as<float>()[r * 37 + 11];
  Tensor full = launch_kernel(reduction("sum", x, {0}, 4))[0],
         alone = launch_kernel(reduction("sum", column, {0}, 4))[0];
  EXPECT_EQ(full.as<float>()[11], alone.as<float>()[0]);
}

TEST(Reduce, NothingAndNaN) {
  EXPECT_EQ(launch_everywhere(reduction("sum", random_f32({0, 3}, 1), {0}))[0].get(2), 0);
  EXPECT_EQ(launch_everywhere(reduction("prod_reduce", random_f32({3, 0}, 1), {1}))[0].get(1), 1);
  EXPECT_EQ(kernel_table().choose(query_of(reduction("max_reduce", random_f32({3, 0}, 1), {1}))).row, nullptr);
  Tensor x = random_f32({5, 100}, 1);
  x.as<float>()[130] = NAN;
  for (const char* op : {"max_reduce", "min_reduce", "sum"}) {
    Tensor y = launch_everywhere(reduction(op, x, {1}))[0];
    EXPECT_TRUE(std::isnan(y.get(1))) << op;
    EXPECT_FALSE(std::isnan(y.get(2))) << op;
  }
}

TEST(Reduce, KeptDimensionsAndNoAxes) {
  Tensor x = random_f32({4, 6}, 1);
  EXPECT_EQ(launch_everywhere(reduction("sum", x, {0}, 1, true))[0].shape(), (Shape{1, 6}));
  EXPECT_TRUE(identical(launch_everywhere(reduction("max_reduce", x, {}))[0], x));
}

}  // namespace
}  // namespace epl::cpu::reduce_test
