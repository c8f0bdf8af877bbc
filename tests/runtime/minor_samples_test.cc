// Samples that are not the major part of a dimension: [time * samples, ...], as attention over time-major sequences
// writes it. Ranks and micro-batches take their pieces out of every step of time, and results come back in the order of
// the whole.
#include <gtest/gtest.h>

#include "core/runtime/session.h"
#include "tests/runtime/graph_model.h"

namespace epl {
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

struct Trained {
  std::vector<Tensor> outputs, weights;
};

Trained train(int64_t ranks, const char* micro_batches, int threads) {
  PlanOptions options;
  options.model = GraphModel::parse(folded);
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "sgd";
  options.train.optimizer_options = {{"lr", 0.1}};
  options.ranks = ranks;
  EXPECT_TRUE(set_config(options.strategy, "pipeline.num_micro_batch", micro_batches).ok());
  Host host = test_host(threads);
  auto plan = CompiledPlan::create(host, options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  if (!plan.ok()) return {};
  for (const Entry& entry : (*plan)->entries()) {
    const std::string text = print_plan(entry.plan), local = print_local(entry.locals[0]),
                      program = print_program(entry.programs[0]);
    EXPECT_NE(text.find("outer 3"), std::string::npos) << text;
    auto plan_again = parse_plan(text, entry.plan.graph);
    auto local_again = parse_local(local);
    auto program_again = parse_program(program, (*plan)->device()->kernels());
    EXPECT_TRUE(plan_again.ok() && print_plan(*plan_again) == text) << plan_again.status().to_string();
    EXPECT_TRUE(local_again.ok() && print_local(*local_again) == local) << local_again.status().to_string();
    EXPECT_TRUE(program_again.ok() && print_program(*program_again) == program) << program_again.status().to_string();
  }
  auto session = Session::create(host, *plan, 7);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  Trained out;
  for (int s = 0; s < 4; ++s) {
    Tensor x(TensorType{DType::f32, {8, 3, 4}}), target(TensorType{DType::i64, {8}});
    for (int i = 0; i < 96; ++i) x.set(i, philox_uniform(s, i) - 0.5);
    for (int i = 0; i < 8; ++i) target.set_int(i, (i + s) % 5);
    StepMetrics metrics;
    Status status = (*session)->step(std::vector<Tensor>{x, target}, metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    std::vector<Tensor> results = {Tensor(TensorType{DType::f32, {8, 5}}), Tensor(TensorType{DType::f32, {24, 5}})};
    status = (*session)->predict(std::vector<Tensor>{x}, results);
    EXPECT_TRUE(status.ok()) << status.to_string();
    out.outputs.push_back(results[1]);
  }
  for (const char* name : {"w"}) out.weights.push_back(*(*session)->state(name));
  return out;
}

TEST(MinorSamples, HaveTheSameBitsUnderEveryLayout) {
  const Trained one = train(1, "1", 1);
  ASSERT_EQ(one.outputs.size(), 4u);
  for (auto [ranks, micro_batches, threads] : {std::tuple(1, "2", 1), std::tuple(1, "4", 2), std::tuple(2, "1", 2),
                                               std::tuple(2, "2", 2), std::tuple(4, "2", 2)}) {
    SCOPED_TRACE(cat(ranks, " ranks, ", micro_batches, " micro-batches"));
    const Trained other = train(ranks, micro_batches, threads);
    ASSERT_EQ(other.outputs.size(), one.outputs.size());
    for (size_t i = 0; i < one.outputs.size(); ++i)
      EXPECT_TRUE(identical(one.outputs[i], other.outputs[i])) << "step " << i;
    for (size_t i = 0; i < one.weights.size(); ++i) EXPECT_TRUE(identical(one.weights[i], other.weights[i])) << i;
  }
}

}  // namespace
}  // namespace epl
