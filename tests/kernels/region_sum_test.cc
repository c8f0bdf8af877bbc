// A region with sums gives the bits of the region and of the sums one after the other.
#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::region_sum_test {
namespace {

struct Case {
  Shape shape, beside;  // of the operands
  Ints axes;
  Units units;
};

// One result is stored and summed, one is summed alone.
constexpr const char* expression = "x0; x1; sub(%0,%1); mul(%2,%2); neg(%3) -> %2, %2, %4";

std::vector<Tensor> one_after_the_other(const Case& c, const std::vector<Tensor>& inputs) {
  const TensorType full{DType::f32, c.shape};
  const Launch region = {.op = "fused",
                         .attributes = {{"expression", std::string(expression)}},
                         .inputs = inputs,
                         .outputs = {full, full, full}};
  const std::vector<Tensor> made = launch_kernel(region, "");
  std::vector<Tensor> results = {made[0]};
  Shape kept = c.shape;
  for (int64_t axis : c.axes) kept[static_cast<size_t>(axis)] = 1;
  for (size_t k : {size_t{1}, size_t{2}}) {
    const Launch sum = {.op = "sum",
                        .attributes = {{"axes", c.axes}, {"keep", true}},
                        .inputs = {made[k]},
                        .outputs = {TensorType{DType::f32, kept}},
                        .units = c.units};
    results.push_back(launch_kernel(sum, "")[0]);
  }
  return results;
}

Launch at_once(const Case& c, const std::vector<Tensor>& inputs, const std::vector<Tensor>& like) {
  Launch launch = {.op = "fused_sum",
                   .attributes = {{"expression", std::string(expression)},
                                  {"types", std::string()},
                                  {"axes", c.axes},
                                  {"keep", true},
                                  {"sums", int64_t{2}}},
                   .inputs = inputs,
                   .units = c.units};
  for (const Tensor& t : like) launch.outputs.push_back(t.type());
  return launch;
}

void expect_same(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t o = 0; o < want.size(); ++o) EXPECT_TRUE(identical(got[o], want[o])) << "output " << o;
}

TEST(RegionSum, HasTheBitsOfRegionAndSums) {
  const std::vector<Case> cases = {
      {{8, 6, 7, 7}, {1, 6, 1, 1}, {0, 2, 3}, 8},        // rows of 49, several at once, which begin lines
      {{8, 5, 7, 7}, {1, 5, 1, 1}, {0, 2, 3}, 1},        // a sum's values lie apart
      {{8, 5, 7, 7}, {1, 5, 1, 1}, {0, 2, 3}, 4},        // and so do a unit's
      {{4, 3, 56, 56}, {1, 3, 1, 1}, {0, 2, 3}, 4},      // rows of several segments
      {{2, 3, 40, 37}, {3, 40, 37}, {2, 3}, 1},          // no batch
      {{12, 33}, {12, 33}, {0, 1}, 4},                   // one sum
      {{5, 1031}, {1}, {1}, 1},                          // a last segment of 7
      {{2, 4, 3, 64}, {4, 1, 64}, {1, 3}, Units(2, 2)},  // units are not the major part
      {{300000}, {1}, {0}, 1},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(cat("[", c.shape, "] over [", c.axes, "], units ", c.units.count));
    const std::vector<Tensor> inputs = {random_f32(c.shape, 1), random_f32(c.beside, 2)};
    const std::vector<Tensor> want = one_after_the_other(c, inputs);
    Launch launch = at_once(c, inputs, want);
    expect_same(launch_everywhere(launch), want);
    launch.aliases = {{0, 0}};
    expect_same(launch_everywhere(launch), want);
  }
}

// 4 MiB are stored past the caches, where lines allow it.
TEST(RegionSum, OfLargeResultsHasThemToo) {
  for (const Shape& shape : {Shape{8, 700, 14, 14}, Shape{8, 2700, 7, 7}}) {
    const Case c = {shape, {1, shape[1], 1, 1}, {0, 2, 3}, 8};
    const std::vector<Tensor> inputs = {random_f32(c.shape, 3), random_f32(c.beside, 4)};
    const std::vector<Tensor> want = one_after_the_other(c, inputs);
    expect_same(launch_everywhere(at_once(c, inputs, want)), want);
  }
}

TEST(RegionSum, LeavesOutWhatNobodyWants) {
  const Case c = {{8, 6, 9, 9}, {1, 6, 1, 1}, {0, 2, 3}, 8};
  const std::vector<Tensor> inputs = {random_f32(c.shape, 5), random_f32(c.beside, 6)};
  const std::vector<Tensor> want = one_after_the_other(c, inputs);
  Launch launch = at_once(c, inputs, want);
  for (size_t unused = 0; unused < 3; ++unused) {
    launch.wanted = {true, true, true};
    launch.wanted[unused] = false;
    const std::vector<Tensor> got = launch_everywhere(launch);
    for (size_t o = 0; o < 3; ++o) {
      if (o == unused) continue;
      EXPECT_TRUE(identical(got[o], want[o])) << "output " << o << " without " << unused;
    }
  }
}

}  // namespace
}  // namespace epl::cpu::region_sum_test
