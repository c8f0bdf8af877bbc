// The small model that tests of sessions train, and what they train it on.
#pragma once

#include "core/compile/compiled_plan.h"
#include "tests/runtime/graph_model.h"

namespace epl {

inline constexpr std::string_view mlp = R"(graph mlp(x: f32[8,12] batch 0) {
  w1: f32[12,16] = param
  b1: f32[16] = param
  w2: f32[16,4] = param
  forward:
  h: f32[8,16] = matmul(x, w1)
  hb: f32[8,16] = add(h, b1)
  a: f32[8,16] = relu(hb)
  y: f32[8,4] = matmul(a, w2)
  output y = y
}
)";

inline Result<PlanOptions> mlp_options(int64_t ranks, const std::string& micro_batches) {
  PlanOptions options;
  options.model = GraphModel::parse(mlp);
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "adamw";
  options.train.optimizer_options = {{"lr", 0.01}};
  options.train.clip_norm = 1.0;
  options.ranks = ranks;
  EPL_TRY(set_config(options.strategy, "pipeline.num_micro_batch", micro_batches));
  return options;
}

// The full batch of a step; one target does not count.
inline std::vector<Tensor> mlp_batch(int64_t step) {
  Tensor x(TensorType{DType::f32, {8, 12}}), t(TensorType{DType::i64, {8}});
  for (int i = 0; i < 96; ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
  for (int i = 0; i < 8; ++i) t.set_int(i, i == 3 ? -100 : (i + step) % 4);
  return {x, t};
}

}  // namespace epl
