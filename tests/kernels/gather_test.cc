// gather and its gradient: values, the order of the additions, indices that are not there.
#include <cmath>

#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::gather_test {
namespace {

Launch gather(Tensor x, Tensor indices, int64_t axis) {
  Shape out(x.shape().begin(), x.shape().begin() + axis);
  out.insert(out.end(), indices.shape().begin(), indices.shape().end());
  out.insert(out.end(), x.shape().begin() + axis + 1, x.shape().end());
  TensorType type{x.dtype(), out};
  return {
      .op = "gather", .attributes = {{"axis", axis}}, .inputs = {std::move(x), std::move(indices)}, .outputs = {type}};
}

TEST(Gather, TakesSlices) {
  for (DType type : {DType::i64, DType::i32, DType::u8}) {
    for (int64_t axis : {0, 1, 2}) {
      Tensor x = random_f32({4, 9, 70}, 1), indices = random_int(type, {5, 3}, 2, type == DType::u8 ? 0 : -4, 3);
      Tensor y = launch_everywhere(gather(x, indices, axis))[0];
      int64_t size = x.shape()[axis], inner = axis == 0 ? 630 : axis == 1 ? 70 : 1;
      for (int64_t e = 0; e < y.elements(); ++e) {
        int64_t i = e % inner, k = e / inner % 15, o = e / inner / 15, index = indices.get_int(k);
        ASSERT_EQ(y.get(e), x.get((o * size + (index < 0 ? index + size : index)) * inner + i));
      }
    }
  }
}

TEST(Gather, IndicesThatAreNotThere) {
  Tensor y = launch_everywhere(gather(random_f32({4, 3}, 1), Tensor::from_ints({1, 4, -5}), 0))[0];
  EXPECT_FALSE(std::isnan(y.get(0)));
  for (int i = 3; i < 9; ++i) EXPECT_TRUE(std::isnan(y.get(i)));
  Tensor full = launch_everywhere(gather(random_int(DType::i64, {4, 3}, 1, 5, 9), Tensor::from_ints({4}), 0))[0];
  EXPECT_EQ(full.get_int(1), 0);
}

// More elements than one task takes, so that threads meet; indices from the end and ones that are not there.
TEST(GatherElements, TakesAnElementForEveryIndex) {
  for (int64_t axis : {0, 1, 2}) {
    for (DType type : {DType::f32, DType::i64}) {
      const Shape x_shape = {40, 30, 50}, y_shape = {axis == 0 ? 77 : 37, axis == 1 ? 77 : 30, axis == 2 ? 77 : 41};
      const int64_t size = x_shape[axis];
      Tensor x = type == DType::f32 ? random_f32(x_shape, 1) : random_int(type, x_shape, 1, 5, 1000);
      Tensor indices = random_int(DType::i64, y_shape, 2, -size - 1, size);
      Tensor y = launch_everywhere({.op = "gather_elements",
                                    .attributes = {{"axis", axis}},
                                    .inputs = {x, indices},
                                    .outputs = {{type, y_shape}}})[0];
      int64_t e = 0;
      for (int64_t i = 0; i < y_shape[0]; ++i) {
        for (int64_t j = 0; j < y_shape[1]; ++j) {
          for (int64_t k = 0; k < y_shape[2]; ++k, ++e) {
            int64_t at[] = {i, j, k}, index = indices.get_int(e);
            at[axis] = index < 0 ? index + size : index;
            if (at[axis] < 0 || at[axis] >= size) {
              ASSERT_TRUE(type == DType::f32 ? std::isnan(y.get(e)) : y.get_int(e) == 0) << e;
            } else {
              ASSERT_EQ(y.get(e), x.get((at[0] * 30 + at[1]) * 50 + at[2])) << e;
            }
          }
        }
      }
    }
  }
}

Launch gather_grad(Tensor dy, Tensor indices, int64_t axis, int64_t size, int64_t units) {
  Shape out(dy.shape().begin(), dy.shape().begin() + axis);
  out.push_back(size);
  out.insert(out.end(), dy.shape().begin() + axis + indices.type().ndim(), dy.shape().end());
  return {.op = "gather_grad",
          .attributes = {{"axis", axis}, {"size", size}},
          .inputs = {std::move(dy), std::move(indices)},
          .outputs = {f32_type(out)},
          .units = units};
}

// The order as gather.cc states it.
std::vector<float> expected(const Tensor& dy, const Tensor& indices, int64_t outer, int64_t size, int64_t inner,
                            int64_t units) {
  int64_t count = indices.elements(), run = count / units;
  std::vector<std::vector<float>> sums(units, std::vector<float>(outer * size * inner, 0.0f));
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t k = 0; k < count; ++k) {
      int64_t index = indices.get_int(k);
      if (index < 0) index += size;
      if (index < 0 || index >= size) continue;
      for (int64_t i = 0; i < inner; ++i)
        sums[k / run][(o * size + index) * inner + i] += dy.as<float>()[(o * count + k) * inner + i];
    }
  }
  for (int64_t step = 1; step < units; step *= 2) {
    for (int64_t u = 0; u < units; u += 2 * step) {
      for (size_t i = 0; i < sums[u].size(); ++i) sums[u][i] += sums[u + step][i];
    }
  }
  return sums[0];
}

TEST(GatherGrad, AddsInOrder) {
  for (int64_t units : {1, 2, 4, 8}) {
    for (auto [size, inner] : std::vector<std::pair<int64_t, int64_t>>{{7, 20}, {1000, 5}, {2, 700}, {50, 1}}) {
      Tensor dy = random_f32({8, 30, inner}, 1), indices = random_int(DType::i64, {8, 30}, 2, -size - 1, size);
      Tensor dx = launch_everywhere(gather_grad(dy, indices, 0, size, units))[0];
      std::vector<float> want = expected(dy, indices, 1, size, inner, units);
      ASSERT_EQ(0, std::memcmp(dx.data(), want.data(), dx.bytes()))
          << size << " x " << inner << ", " << units << " units";
    }
  }
  Tensor dy = random_f32({3, 16, 6}, 1), indices = random_int(DType::i32, {16}, 2, 0, 4);
  Tensor dx = launch_everywhere(gather_grad(dy, indices, 1, 5, 4))[0];
  std::vector<float> want = expected(dy, indices, 3, 5, 6, 4);
  ASSERT_EQ(0, std::memcmp(dx.data(), want.data(), dx.bytes()));
}

TEST(GatherGrad, HalfTheUnitsAreASubtree) {
  Tensor dy = random_f32({16, 10, 9}, 1), indices = random_int(DType::i64, {16, 10}, 2, 0, 6);
  auto half = [&](int64_t which) {
    Tensor part(f32_type({8, 10, 9})), some(TensorType{DType::i64, {8, 10}});
    std::memcpy(part.data(), dy.as<float>().data() + which * part.elements(), part.bytes());
    std::memcpy(some.data(), indices.as<int64_t>().data() + which * 80, some.bytes());
    return launch_kernel(gather_grad(part, some, 0, 7, 4))[0];
  };
  Tensor full = launch_kernel(gather_grad(dy, indices, 0, 7, 8))[0], a = half(0), b = half(1);
  for (int64_t i = 0; i < full.elements(); ++i) EXPECT_EQ(full.as<float>()[i], a.as<float>()[i] + b.as<float>()[i]);
}

TEST(GatherGrad, NothingToAdd) {
  Tensor dx = launch_everywhere(gather_grad(random_f32({0, 4}, 1), Tensor(TensorType{DType::i64, {0}}), 0, 3, 1))[0];
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(dx.get(i), 0);
}

}  // namespace
}  // namespace epl::cpu::gather_test
