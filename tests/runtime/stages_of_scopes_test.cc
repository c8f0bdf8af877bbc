// Scopes as stages, several of them a rank, of a model with a norm in the first one: its node gives the gradients of
// activations and of a weight at once, in a backward call. The last stage has the loss alone, so the norm of all
// gradients is complete in the stage before it.
#include <gtest/gtest.h>

#include "tests/runtime/skip_mlp.h"
#include "tests/runtime/trained.h"

namespace epl::stages_of_scopes_test {
namespace {

constexpr std::string_view model = R"(graph mlp(x: f32[8,12] batch 0) {
  w0: f32[12,12] = param
  scale: f32[12] = param
  shift: f32[12] = param
  w1: f32[12,12] = param
  w2: f32[12,12] = param
  w3: f32[12,4] = param
  forward:
  h: f32[8,12] = matmul(x, w0)
  n: f32[8,12], n.mean: f32[8,1], n.rstd: f32[8,1] = layer_norm(h, scale, shift)
  a: f32[8,12] = matmul(n, w1)
  b: f32[8,12] = relu(a)
  c: f32[8,12] = matmul(b, w2)
  y: f32[8,4] = matmul(c, w3)
  output y = y
}
)";

Trained trained(const std::string& name, int64_t ranks, const std::string& keys) {
  auto options = layout_options(GraphModel::parse(model), ranks, cat("{", keys, "}"));
  if (options.ok()) options->train.clip_norm = 0.01;  // below the norm of every step
  return train(layout_plan(options), name, 4, skip_mlp_batch);
}

class StagesOfScopes : public ::testing::TestWithParam<std::string> {};

TEST_P(StagesOfScopes, AreClippedAlike) {
  const std::string scopes = R"("scopes": [{"name": "s0", "match": ["h", "n"], "replicate": 1},
    {"name": "s1", "match": ["a", "b"], "replicate": 1}, {"name": "s2", "match": ["c", "y"], "replicate": 1},
    {"name": "s3", "match": "*", "replicate": 1}], "pipeline.strategy": )";
  const Trained one = trained("one rank", 1, "");
  for (const int64_t micro_batches : {1, 2, 4}) {
    const std::string keys = cat(scopes, "\"", GetParam(), "\", \"pipeline.num_micro_batch\": ", micro_batches);
    expect_same(trained(GetParam(), 4, keys), one, cat(GetParam(), ", ", micro_batches));
  }
}

INSTANTIATE_TEST_SUITE_P(, StagesOfScopes, ::testing::Values("PreferForward", "PreferBackward", "ZB-H1", "ZB-V"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace epl::stages_of_scopes_test
