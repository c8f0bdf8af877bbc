// One pass of Adam and AdamW gives the bits of the op's own expression, run by the fused engine.
#include "core/ir/op.h"
#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::adam_test {
namespace {

Tensor scalar(float value) {
  Tensor t(TensorType{DType::f32, {}});
  t.set(0, value);
  return t;
}

void expect_the_expression(const char* op, double weight_decay, float rate, int64_t elements) {
  const Tensor w = random_f32({elements}, 1), g = random_f32({elements}, 2), m = random_f32({elements}, 3),
               v = random_f32({elements}, 4, 0, 2);
  Launch launch{.op = op,
                .attributes = {{"beta1", 0.9},
                               {"beta2", 0.999},
                               {"epsilon", 1e-8},
                               {"weight_decay", weight_decay},
                               {"holds", rate < 0}},
                .inputs = {w, g, m, v, scalar(rate), scalar(0.19f), scalar(0.002f)},
                .outputs = {w.type(), w.type(), w.type()}};
  const std::vector<Tensor> got = launch_everywhere(launch);
  std::vector<const TensorType*> inputs, outputs(3, &w.type());
  for (const Tensor& input : launch.inputs) inputs.push_back(&input.type());
  Launch fused = launch;
  fused.op = "fused";
  fused.attributes = {
      {"expression", scalar_expression(OpQuery(op_named(op), launch.attributes, inputs, outputs)).text()}};
  const std::vector<Tensor> want = launch_kernel(fused, "fused_tiles");
  for (int o = 0; o < 3; ++o) EXPECT_TRUE(identical(got[o], want[o])) << op << " output " << o << " of " << elements;
  // Over the parameter and the states, as a step runs.
  launch.aliases = {{0, 0}, {2, 1}, {3, 2}};
  const std::vector<Tensor> over = launch_kernel(launch);
  for (int o = 0; o < 3; ++o) EXPECT_TRUE(identical(over[o], want[o])) << op << " in place, output " << o;
}

TEST(Adam, IsItsExpressionInOnePass) {
  for (const char* op : {"adam", "adamw"}) {
    for (double weight_decay : {0.0, 0.1}) {
      for (float rate : {0.03f, -1.0f}) {
        for (int64_t elements : {0, 1, 7, 16, 1000, 70001}) expect_the_expression(op, weight_decay, rate, elements);
      }
    }
  }
}

}  // namespace
}  // namespace epl::cpu::adam_test
