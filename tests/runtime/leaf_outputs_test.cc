// Outputs that no node computes: an input, a view of one, a parameter, a constant. They leave the step like any other.
#include <gtest/gtest.h>

#include "core/runtime/session.h"
#include "tests/runtime/graph_model.h"

namespace epl::leaf_outputs_test {
namespace {

constexpr std::string_view leaves = R"(graph leaves(x: f32[8,4] batch 0) {
  w: f32[3] = param
  c: f32[2] = const f32[2](1.5, 2.5)
  forward:
  r: f32[8,2,2] = reshape(x) {shape=[8,2,2]}
  output same = x
  output view = r
  output weight = w
  output constant = c
}
)";

void predict_leaves(const std::string& micro_batches, int64_t ranks) {
  Host host = test_host(2);
  PlanOptions options;
  options.model = GraphModel::parse(leaves);
  options.training = false;
  options.ranks = ranks;
  ASSERT_TRUE(set_config(options.strategy, "pipeline.num_micro_batch", micro_batches).ok());
  auto plan = CompiledPlan::create(host, options);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  auto session = Session::create(host, *plan, {.seed = 7});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  Tensor w(TensorType{DType::f32, {3}});
  for (int i = 0; i < 3; ++i) w.set(i, 7.0 + i);
  ASSERT_TRUE((*session)->state().set("w", w).ok());
  Tensor x(TensorType{DType::f32, {8, 4}});
  for (int i = 0; i < 32; ++i) x.set(i, 0.5 * i);
  std::vector<Tensor> inputs = {x}, outputs;
  for (const Port& port : (*plan)->entries().front().outputs) outputs.emplace_back(port.global_type);
  Status status = (*session)->predict(inputs, outputs);
  ASSERT_TRUE(status.ok()) << status.to_string();
  ASSERT_EQ(outputs.size(), 4u);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(outputs[0].get(i), 0.5 * i) << "same " << i;
    EXPECT_EQ(outputs[1].get(i), 0.5 * i) << "view " << i;
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(outputs[2].get(i), 7.0 + i);
  EXPECT_EQ(outputs[3].get(0), 1.5);
  EXPECT_EQ(outputs[3].get(1), 2.5);
}

TEST(LeafOutputs, OneMicroBatch) { predict_leaves("1", 1); }
TEST(LeafOutputs, FourMicroBatches) { predict_leaves("4", 1); }
TEST(LeafOutputs, TwoRanksOfTwoMicroBatches) { predict_leaves("2", 2); }

TEST(LeafOutputs, APlanWithoutATrainerDoesNotStep) {
  Host host = test_host(1);
  PlanOptions options;
  options.model = GraphModel::parse(leaves);
  options.training = false;
  auto plan = CompiledPlan::create(host, options);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  auto session = Session::create(host, *plan, {.seed = 7});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  StepMetrics metrics;
  std::vector<Tensor> inputs = {Tensor(TensorType{DType::f32, {8, 4}})};
  EXPECT_EQ((*session)->step(inputs, metrics).code(), Code::invalid_argument);
}

}  // namespace
}  // namespace epl::leaf_outputs_test
