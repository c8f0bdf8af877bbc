// Slices at tuples of indices: values, the order of sums, slices wider than a task takes, tuples that are not there.
#include <cmath>

#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::tuples_test {
namespace {

struct Case {
  Shape x, indices;  // [b..., (t), r...] and [b..., i..., t]
  int64_t batch = 0;
};
const std::vector<Case> cases = {{{9, 70}, {240, 1}},
                                 {{2, 5, 700}, {48, 2}},
                                 {{3, 4, 5, 6}, {3, 8, 2, 2}, 1},
                                 {{50}, {16, 15, 1}},
                                 {{4000, 3}, {800, 1}}};

int64_t product(const Shape& shape, size_t from, size_t to) {
  int64_t n = 1;
  for (size_t d = from; d < to; ++d) n *= shape[d];
  return n;
}

struct Sizes {
  int64_t batches, count, span, inner;
  explicit Sizes(const Case& c) {
    const size_t b = static_cast<size_t>(c.batch), t = static_cast<size_t>(c.indices.back());
    batches = product(c.x, 0, b), span = product(c.x, b, b + t), inner = product(c.x, b + t, c.x.size());
    count = product(c.indices, b, c.indices.size() - 1);
  }
};

// Indices from the end, and some that are not there.
Tensor draw_indices(const Case& c) {
  Tensor indices(TensorType{DType::i64, c.indices});
  const int64_t tuple = c.indices.back();
  for (int64_t t = 0; t < tuple; ++t) {
    const int64_t size = c.x[static_cast<size_t>(c.batch + t)];
    const Tensor drawn = random_int(DType::i64, {indices.elements() / tuple}, 7 + static_cast<int>(t), -size - 1, size);
    for (int64_t i = 0; i < drawn.elements(); ++i) indices.set_int(i * tuple + t, drawn.get_int(i));
  }
  return indices;
}

// The slice that a position names, -1 for none.
int64_t slice_of(const Case& c, const Tensor& indices, int64_t position) {
  const Sizes s(c);
  int64_t element = 0;
  for (int64_t t = 0; t < c.indices.back(); ++t) {
    const int64_t size = c.x[static_cast<size_t>(c.batch + t)], i = indices.get_int(position * c.indices.back() + t);
    if (i < -size || i >= size) return -1;
    element = element * size + (i < 0 ? i + size : i);
  }
  return position / s.count * s.span + element;
}

Shape picked_shape(const Case& c) {
  Shape shape(c.indices.begin(), c.indices.end() - 1);
  shape.insert(shape.end(), c.x.begin() + c.batch + c.indices.back(), c.x.end());
  return shape;
}

TEST(GatherNd, TakesSlices) {
  for (const Case& c : cases) {
    for (const DType type : {DType::f32, DType::i64}) {
      const Tensor x = type == DType::f32 ? random_f32(c.x, 1) : random_int(type, c.x, 1, 5, 1000);
      const Tensor indices = draw_indices(c);
      const Tensor y = launch_everywhere({.op = "gather_nd",
                                          .attributes = {{"batch_dims", c.batch}},
                                          .inputs = {x, indices},
                                          .outputs = {{type, picked_shape(c)}}})[0];
      const int64_t inner = Sizes(c).inner;
      for (int64_t i = 0; i < y.elements(); ++i) {
        const int64_t slice = slice_of(c, indices, i / inner);
        if (slice < 0) {
          ASSERT_TRUE(type == DType::f32 ? std::isnan(y.get(i)) : y.get_int(i) == 0) << i;
        } else {
          ASSERT_EQ(y.get(i), x.get(slice * inner + i % inner)) << i;
        }
      }
    }
  }
}

// The order as tuples.cc states it.
TEST(GatherNdGrad, AddsInOrder) {
  for (const Case& c : cases) {
    for (const int64_t units : {1, 2, 4, 8}) {
      const Sizes s(c);
      const Tensor dy = random_f32(picked_shape(c), 1), indices = draw_indices(c);
      const Tensor dx = launch_everywhere({.op = "gather_nd_grad",
                                           .attributes = {{"batch_dims", c.batch}, {"shape", c.x}},
                                           .inputs = {dy, indices},
                                           .outputs = {f32_type(c.x)},
                                           .units = units})[0];
      const auto elements = static_cast<size_t>(dx.elements());
      std::vector<std::vector<double>> exact(static_cast<size_t>(units), std::vector<double>(elements, 0));
      for (int64_t i = 0; i < dy.elements(); ++i) {
        const int64_t position = i / s.inner, slice = slice_of(c, indices, position);
        if (slice < 0) continue;
        const int64_t unit = position % s.count / (s.count / units);
        exact[static_cast<size_t>(unit)][static_cast<size_t>(slice * s.inner + i % s.inner)] += dy.get(i);
      }
      std::vector<std::vector<float>> sums;
      for (const std::vector<double>& unit : exact) sums.emplace_back(unit.begin(), unit.end());
      for (size_t step = 1; step < sums.size(); step *= 2) {
        for (size_t u = 0; u + step < sums.size(); u += 2 * step) {
          for (size_t i = 0; i < elements; ++i) sums[u][i] += sums[u + step][i];
        }
      }
      ASSERT_EQ(0, std::memcmp(dx.data(), sums[0].data(), dx.bytes())) << units << " units";
    }
  }
}

TEST(ScatterNd, ReplacesAndCombines) {
  for (const Case& c : cases) {
    if (c.batch > 0) continue;
    for (const std::string reduction : {"none", "add", "mul", "max"}) {
      for (const DType type : {DType::f32, DType::i64}) {
        for (const std::vector<std::pair<int, int>>& aliases : {std::vector<std::pair<int, int>>{}, {{0, 0}}}) {
          const bool floats = type == DType::f32;
          const Tensor x = floats ? random_f32(c.x, 1) : random_int(type, c.x, 1, -9, 9), indices = draw_indices(c),
                       updates = floats ? random_f32(picked_shape(c), 2) : random_int(type, picked_shape(c), 2, -2, 2);
          const Tensor y = launch_everywhere({.op = "scatter_nd",
                                              .attributes = {{"reduction", reduction}},
                                              .inputs = {x, indices, updates},
                                              .outputs = {x.type()},
                                              .aliases = aliases})[0];
          Tensor want(x.type());
          std::memcpy(want.data(), x.data(), x.bytes());
          const int64_t inner = Sizes(c).inner;
          for (int64_t i = 0; i < updates.elements(); ++i) {
            const int64_t slice = slice_of(c, indices, i / inner), to = slice * inner + i % inner;
            if (slice < 0) continue;
            const double old = want.get(to), update = updates.get(i);
            want.set(to, reduction == "none"  ? update
                         : reduction == "add" ? old + update
                         : reduction == "mul" ? old * update
                                              : std::max(old, update));
          }
          ASSERT_EQ(0, std::memcmp(y.data(), want.data(), y.bytes())) << reduction;
        }
      }
    }
  }
}

TEST(GatherNdGrad, NothingToAdd) {
  const Tensor dx = launch_everywhere({.op = "gather_nd_grad",
                                       .attributes = {{"batch_dims", int64_t{0}}, {"shape", Shape{3, 4}}},
                                       .inputs = {random_f32({0, 4}, 1), Tensor(TensorType{DType::i64, {0, 1}})},
                                       .outputs = {f32_type({3, 4})}})[0];
  for (int64_t i = 0; i < dx.elements(); ++i) EXPECT_EQ(dx.get(i), 0);
}

}  // namespace
}  // namespace epl::cpu::tuples_test
