// Pools and dropout against the meaning of their ops, at sizes beyond the samples.
#include <cmath>

#include "core/base/philox.h"
#include "core/ir/evaluate.h"
#include "core/ir/op.h"
#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::pool_test {
namespace {

struct PoolCase {
  Shape x;
  Ints kernel, strides, pads, dilations;
  bool ceil = false, include_pad = false;
};

std::vector<Tensor> meaning(const Launch& launch) {
  auto want = evaluate_op(op_named(launch.op), launch.attributes, launch.inputs);
  EXPECT_TRUE(want.ok()) << want.status().to_string();
  return want.ok() ? *want : std::vector<Tensor>();
}
void set_outputs(Launch& launch) {
  std::vector<const TensorType*> types;
  for (const Tensor& in : launch.inputs) types.push_back(&in.type());
  auto outputs = infer_types(op_named(launch.op), launch.attributes, types);
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  launch.outputs = *outputs;
}
void compare(Launch launch) {
  set_outputs(launch);
  std::vector<Tensor> got = launch_everywhere(launch), want = meaning(launch);
  for (size_t o = 0; o < want.size(); ++o) {
    for (int64_t i = 0; i < want[o].elements(); ++i) {
      ASSERT_TRUE(near(got[o].get(i), want[o].get(i), 1e-6, 1e-6))
          << launch.op << " output " << o << " element " << i << ": " << got[o].get(i) << ", expected "
          << want[o].get(i);
    }
  }
}

TEST(Pool, AgreesWithTheMeaning) {
  const std::vector<PoolCase> cases = {
      {{2, 3, 13, 17}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {}},
      {{2, 3, 13, 17}, {2, 3}, {}, {}, {}},
      {{1, 2, 9, 75}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {}},  // rows of several vectors
      {{1, 2, 5, 76}, {2, 4}, {1, 2}, {0, 0, 0, 1}, {1, 3}},
      {{1, 2, 5, 41}, {2, 3}, {}, {}, {}},
      {{1, 2, 12, 12}, {3, 2}, {2, 3}, {2, 0, 1, 1}, {}, true},
      {{1, 2, 12, 12}, {3, 2}, {2, 3}, {2, 0, 1, 1}, {}, true, true},
      {{2, 2, 20}, {4}, {3}, {1, 2}, {}, false, true},
      {{1, 2, 15, 14}, {3, 3}, {1, 2}, {2, 2, 2, 2}, {2, 3}},
      {{1, 2, 7, 8, 9}, {2, 3, 2}, {2, 1, 2}, {1, 1, 0, 0, 1, 1}, {}, false, true},
      {{3, 1, 40, 40}, {40, 40}, {}, {}, {}},
  };
  for (const PoolCase& c : cases) {
    Tensor x = random_f32(c.x, 1);
    Attributes window = {
        {"kernel", c.kernel}, {"strides", c.strides}, {"pads", c.pads}, {"dilations", c.dilations}, {"ceil", c.ceil}};
    Launch max = {.op = "max_pool", .attributes = window, .inputs = {x}};
    compare(max);
    set_outputs(max);
    std::vector<Tensor> y = launch_kernel(max);
    compare({.op = "max_pool_grad", .attributes = {{"shape", c.x}}, .inputs = {random_f32(y[0].shape(), 2), y[1]}});
    window.set("count_include_pad", c.include_pad);
    compare({.op = "avg_pool", .attributes = window, .inputs = {x}});
    window.set("shape", c.x);
    compare({.op = "avg_pool_grad", .attributes = window, .inputs = {random_f32(y[0].shape(), 3)}});
  }
}

TEST(Pool, MaximumOfNaNAndOfTies) {
  Tensor x = random_f32({1, 1, 4, 4}, 1);
  for (float& v : x.as<float>()) v = 1;
  x.as<float>()[10] = NAN;
  compare(
      {.op = "max_pool",
       .attributes =
           {{"kernel", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"pads", Ints{}}, {"dilations", Ints{}}, {"ceil", false}},
       .inputs = {x}});
}

Launch dropout(const Tensor& x, double ratio, StepContext context) {
  return {.op = "dropout",
          .attributes = {{"ratio", ratio}, {"full", false}, {"run", int64_t{0}}, {"stride", int64_t{0}}},
          .inputs = {x},
          .outputs = {x.type(), {DType::boolean, x.shape()}},
          .context = context};
}

TEST(Dropout, DrawsArePhilox) {
  for (int64_t n : {1, 5, 511, 512, 513, 40001}) {
    Tensor x = random_f32({n}, 1, 1, 2);
    for (double ratio : {0.0, 0.1, 0.5, 0.9}) {
      StepContext context = {.seed = 77, .step = 12};
      std::vector<Tensor> got = launch_everywhere(dropout(x, ratio, context));
      uint64_t key = random_key(77, 12, "node");
      for (int64_t i = 0; i < n; ++i) {
        bool keep = philox_uniform(key, static_cast<uint64_t>(i)) >= ratio;
        ASSERT_EQ(got[1].get_int(i), keep);
        ASSERT_TRUE(near(got[0].get(i), keep ? x.get(i) / (1 - ratio) : 0, 2e-7));
      }
      Launch alone = dropout(x, ratio, context);
      alone.aliases = {{0, 0}};
      alone.wanted = {true, false};
      EXPECT_TRUE(identical(launch_kernel(alone)[0], got[0]));
    }
  }
}

// Units 3 and 4 of 8 computed alone draw what they draw in the full batch.
TEST(Dropout, DoesNotDependOnTheCut) {
  Tensor x = random_f32({8, 37}, 1), part(f32_type({2, 37}));
  std::memcpy(part.data(), x.as<float>().data() + 3 * 37, part.bytes());
  Tensor full = launch_kernel(dropout(x, 0.4, {.seed = 1, .step = 2, .first_unit = 0, .units = 8}))[0];
  Tensor alone = launch_kernel(dropout(part, 0.4, {.seed = 1, .step = 2, .first_unit = 3, .units = 2}))[0];
  EXPECT_EQ(0, std::memcmp(alone.data(), full.as<float>().data() + 3 * 37, part.bytes()));
}

}  // namespace
}  // namespace epl::cpu::pool_test
