// Samples that are not the major part of a dimension: [time * samples, ...], as attention over time-major sequences
// writes it. Ranks and micro-batches take their shards out of every step of time, and results come back in the order of
// the whole.
#include <gtest/gtest.h>

#include "tests/runtime/trained.h"

namespace epl::minor_samples_test {
namespace {

constexpr std::string_view folded = R"(graph folded(x: f32[8,3,4] batch 0) {
  w: f32[4,5] = param
  shift: f32[24,1] = param
  forward:
  steps: f32[3,8,4] = transpose(x) {perm=[1,0,2]}
  rows: f32[24,4] = reshape(steps) {shape=[24,4]}
  products: f32[24,5] = matmul(rows, w)
  fixed: f32[24,1] = stop_gradient(shift)
  y: f32[24,5] = add(products, fixed)
  again: f32[3,8,5] = reshape(y) {shape=[3,8,5]}
  s: f32[8,5] = sum(again) {axes=[0],keep=false}
  output s = s
  output y = y
}
)";

Result<std::shared_ptr<const CompiledPlan>> plan_of(int64_t ranks, const char* micro_batches) {
  auto options =
      layout_options(GraphModel::parse(folded), ranks, cat("{\"pipeline.num_micro_batch\": ", micro_batches, "}"));
  if (options.ok()) {
    options->train.optimizer = "sgd";
    options->train.optimizer_options = {{"lr", 0.1}};
    options->train.clip_norm = 0;
  }
  return layout_plan(options);
}

std::vector<Tensor> batch(int step) {
  Tensor x(TensorType{DType::f32, {8, 3, 4}}), target(TensorType{DType::i64, {8}});
  for (int i = 0; i < 96; ++i) x.set(i, philox_uniform(step, i) - 0.5);
  for (int i = 0; i < 8; ++i) target.set_int(i, (i + step) % 5);
  return {x, target};
}

// The texts of all stages say it, and can be read again.
void expect_texts(const CompiledPlan& plan) {
  for (const Entry& entry : plan.entries()) {
    const std::string text = print_plan(entry.plan), local = print_local(entry.locals[0]),
                      program = print_program(entry.programs[0]);
    EXPECT_NE(text.find("outer 3"), std::string::npos) << text;
    auto plan_again = parse_plan(text, entry.plan.graph);
    auto local_again = parse_local(local);
    auto program_again = parse_program(program, plan.device()->kernels());
    EXPECT_TRUE(plan_again.ok() && print_plan(*plan_again) == text) << plan_again.status().to_string();
    EXPECT_TRUE(local_again.ok() && print_local(*local_again) == local) << local_again.status().to_string();
    EXPECT_TRUE(program_again.ok() && print_program(*program_again) == program) << program_again.status().to_string();
  }
}

TEST(MinorSamples, HaveTheSameBitsUnderEveryLayout) {
  const Trained one = train(plan_of(1, "1"), "one rank", 4, batch);
  for (const auto& [ranks, micro_batches] : {std::pair(1, "2"), {1, "4"}, {2, "1"}, {2, "2"}, {4, "2"}}) {
    const std::string layout = cat(ranks, " ranks, ", micro_batches, " micro-batches");
    const auto plan = plan_of(ranks, micro_batches);
    expect_same(train(plan, layout, 4, batch), one, layout);
    if (plan.ok()) expect_texts(**plan);
  }
}

}  // namespace
}  // namespace epl::minor_samples_test
