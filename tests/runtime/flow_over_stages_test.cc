// Two columns-and-rows pairs that begin at one value: what they give to its gradient are two sums over the ranks of a
// split, (p0 + p1) and (q0 + q1). They are added shard by shard and summed once, (p0 + q0) + (p1 + q1), which has other
// bits, and so also where a stage begins between the pairs.
#include <gtest/gtest.h>

#include "tests/runtime/skip_mlp.h"
#include "tests/runtime/trained.h"

namespace epl::flow_over_stages_test {
namespace {

constexpr std::string_view model = R"(graph pairs(x: f32[8,32] batch 0) {
  w0: f32[32,32] = param
  scale: f32[32] = param
  shift: f32[32] = param
  up1: f32[32,64] = param
  down1: f32[64,32] = param
  up2: f32[32,64] = param
  down2: f32[64,32] = param
  w3: f32[32,4] = param
  forward:
  h: f32[8,32] = matmul(x, w0)
  n: f32[8,32], n.mean: f32[8,1], n.rstd: f32[8,1] = layer_norm(h, scale, shift)
  a1: f32[8,64] = matmul(n, up1)
  r1: f32[8,64] = relu(a1)
  o1: f32[8,32] = matmul(r1, down1)
  a2: f32[8,64] = matmul(n, up2)
  r2: f32[8,64] = relu(a2)
  o2: f32[8,32] = matmul(r2, down2)
  s: f32[8,32] = add(o1, o2)
  y: f32[8,4] = matmul(s, w3)
  output y = y
}
)";

Trained trained(const std::string& name, int64_t ranks, const std::string& keys) {
  return train(layout_plan(layout_options(GraphModel::parse(model), ranks, cat("{", keys, "}"))), name, 4,
               [](int step) { return skip_mlp_samples(step, 8, 32); });
}

class FlowOverStages : public ::testing::TestWithParam<std::string> {};

TEST_P(FlowOverStages, KeepsTheBitsOfOneStage) {
  const Trained one = trained("one stage", 2, R"("default": {"split": 2})");
  const std::string keys = cat(R"("scopes": [{"name": "s0", "match": ["h", "n", "a1", "r1", "o1"], "split": 2},
    {"name": "s1", "match": "*", "split": 2}], "pipeline.strategy": ")",
                               GetParam(), "\"");
  expect_same(trained(GetParam(), 4, keys), one, GetParam());
  expect_same(trained(GetParam(), 4, cat(keys, ", \"pipeline.num_micro_batch\": 4")), one, cat(GetParam(), ", 4"));
}

INSTANTIATE_TEST_SUITE_P(, FlowOverStages, ::testing::Values("PreferForward", "PreferBackward", "ZB-H1"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace epl::flow_over_stages_test
