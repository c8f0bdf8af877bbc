// Elements put where indices say, in more lines than one task takes: what a plain loop over all of them gives.
#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::scatter_test {
namespace {

const Shape data_shape = {24, 16, 20};

// The shape of indices that name elements along `axis`, with smaller sizes elsewhere.
Shape shape_of_indices(size_t axis) {
  Shape shape = {23, 16, 17};
  shape[axis] = 77;
  return shape;
}

// Calls f(i, to) for each index that names an element: its position and the element's.
template <class F> void each_named(const Tensor& indices, size_t axis, const F& f) {
  const Shape& shape = indices.shape();
  for (int64_t i = 0; i < indices.elements(); ++i) {
    int64_t at[3] = {i / (shape[1] * shape[2]), i / shape[2] % shape[1], i % shape[2]};
    const int64_t size = data_shape[axis], index = indices.get_int(i);
    at[axis] = index < 0 ? index + size : index;
    if (at[axis] >= 0 && at[axis] < size) f(i, (at[0] * data_shape[1] + at[1]) * data_shape[2] + at[2]);
  }
}

TEST(GatherElementsGrad, AddsWhatWasReadSeveralTimes) {
  for (const size_t axis : {0, 1, 2}) {
    const Shape shape = shape_of_indices(axis);
    const Tensor dy = random_int(DType::f32, shape, 1, -9, 9),
                 indices = random_int(DType::i64, shape, 2, -data_shape[axis] - 1, data_shape[axis]);
    const Tensor dx = launch_everywhere({.op = "gather_elements_grad",
                                         .attributes = {{"axis", static_cast<int64_t>(axis)}, {"shape", data_shape}},
                                         .inputs = {dy, indices},
                                         .outputs = {f32_type(data_shape)}})[0];
    std::vector<double> sums(static_cast<size_t>(dx.elements()), 0);
    each_named(indices, axis, [&](int64_t i, int64_t to) { sums[static_cast<size_t>(to)] += dy.get(i); });
    for (int64_t i = 0; i < dx.elements(); ++i) ASSERT_EQ(dx.get(i), sums[static_cast<size_t>(i)]) << i;
  }
}

TEST(ScatterElements, ReplacesAndCombines) {
  for (const size_t axis : {0, 1, 2}) {
    for (const char* reduction : {"none", "add", "max"}) {
      for (const std::vector<std::pair<int, int>>& aliases : {std::vector<std::pair<int, int>>{}, {{0, 0}}}) {
        const Shape shape = shape_of_indices(axis);
        const Tensor x = random_int(DType::f32, data_shape, 1, -9, 9),
                     updates = random_int(DType::f32, shape, 3, -9, 9),
                     indices = random_int(DType::i64, shape, 2, -data_shape[axis] - 1, data_shape[axis]);
        const Tensor y =
            launch_everywhere({.op = "scatter_elements",
                               .attributes = {{"axis", static_cast<int64_t>(axis)}, {"reduction", reduction}},
                               .inputs = {x, indices, updates},
                               .outputs = {x.type()},
                               .aliases = aliases})[0];
        std::vector<double> want(x.as<float>().begin(), x.as<float>().end());
        each_named(indices, axis, [&](int64_t i, int64_t to) {
          double& old = want[static_cast<size_t>(to)];
          const double update = updates.get(i);
          old = reduction == std::string("none")  ? update
                : reduction == std::string("add") ? old + update
                                                  : std::max(old, update);
        });
        for (int64_t i = 0; i < y.elements(); ++i) ASSERT_EQ(y.get(i), want[static_cast<size_t>(i)]) << reduction << i;
      }
    }
  }
}

TEST(OneHot, HasOneWhereTheIndexIs) {
  const Tensor indices = random_int(DType::i64, {60, 40}, 1, -12, 12), values = Tensor::from_floats({2}, {-1, 5});
  for (const int64_t axis : {0, 1, 2}) {
    Shape shape = {60, 40};
    shape.insert(shape.begin() + axis, 11);
    const Tensor y = launch_everywhere({.op = "one_hot",
                                        .attributes = {{"axis", axis}, {"depth", int64_t{11}}},
                                        .inputs = {indices, values},
                                        .outputs = {f32_type(shape)}})[0];
    const int64_t inner = axis == 0 ? 2400 : axis == 1 ? 40 : 1;
    for (int64_t i = 0; i < y.elements(); ++i) {
      const int64_t k = i / inner % 11, index = indices.get_int(i / inner / 11 * inner + i % inner);
      ASSERT_EQ(y.get(i), (index < 0 ? index + 11 : index) == k ? 5 : -1) << i;
    }
  }
}

}  // namespace
}  // namespace epl::cpu::scatter_test
