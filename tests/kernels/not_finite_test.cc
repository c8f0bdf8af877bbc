// The guard of a step over tensors that are longer than a vector and than a task.
#include <cmath>
#include <limits>

#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::not_finite_test {
namespace {

int64_t first_not_finite(const std::vector<Tensor>& operands) {
  return launch_everywhere({.op = "first_not_finite",
                            .attributes = {{"counted", false}},
                            .inputs = operands,
                            .outputs = {{DType::i64, {}}}})[0]
      .get_int(0);
}

TEST(NotFinite, IsSeenWhereverItStands) {
  for (DType type : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    SCOPED_TRACE(dtype_name(type));
    const int64_t n = 150001;
    Tensor large(TensorType{type, {n}}), small(TensorType{type, {3, 7}}), none(TensorType{type, {0}});
    for (int64_t i = 0; i < n; ++i)
      large.set(i, (i % 2 ? -1 : 1) * static_cast<double>(i % 200) * 300);  // up to the largest of f16
    EXPECT_EQ(first_not_finite({none, large, small}), -1);
    for (int64_t at : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{64}, int64_t{65536}, int64_t{75000}, n - 1}) {
      for (double bad : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                         std::numeric_limits<double>::quiet_NaN()}) {
        Tensor hit = large.clone();
        hit.set(at, bad);
        EXPECT_EQ(first_not_finite({none, hit, small}), 1) << bad << " at " << at;
        EXPECT_EQ(first_not_finite({small, large, hit, hit}), 2) << bad << " at " << at;
      }
    }
  }
}

// The last operand, where it counts: it is never the one that is not finite.
TEST(NotFinite, NorWhereNothingCounts) {
  const Tensor fine = Tensor::from_floats({2}, {1, 2}), bad = Tensor::from_floats({2}, {1, HUGE_VALF});
  const auto found = [](const Tensor& checked, float count) {
    return launch_everywhere({.op = "first_not_finite",
                              .attributes = {{"counted", true}},
                              .inputs = {checked, checked, Tensor::from_floats({1}, {count}).reshaped({})},
                              .outputs = {{DType::i64, {}}}})[0]
        .get_int(0);
  };
  EXPECT_EQ(found(fine, 0.25f), -1);
  EXPECT_EQ(found(fine, 0), 0);
  EXPECT_EQ(found(bad, 0.25f), 0);
  EXPECT_EQ(found(fine, std::numeric_limits<float>::quiet_NaN()), -1);
}

}  // namespace
}  // namespace epl::cpu::not_finite_test
