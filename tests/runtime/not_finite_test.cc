// A step whose loss or gradients are not finite changes nothing, on any rank, and says where the first NaN came from.
#include <gtest/gtest.h>

#include "core/runtime/session.h"
#include "tests/runtime/graph_model.h"

namespace epl::not_finite_test {
namespace {

// The length of each row of x w: its gradient is NaN where a row is zero, though the length is 0.
constexpr std::string_view lengths = R"(graph lengths(x: f32[8,4] batch 0) {
  w: f32[4,3] = param
  b: f32[1] = param
  forward:
  h: f32[8,3] = matmul(x, w)
  squares: f32[8,3] = mul(h, h)
  n: f32[8] = sum(squares) {axes=[1],keep=false}
  length: f32[8] = sqrt(n)
  y: f32[8] = add(length, b)
  output y = y
}
)";

struct Job {
  std::shared_ptr<const CompiledPlan> plan;
  std::unique_ptr<Session> session;
};

Job start(int64_t ranks, const char* micro_batches, double clip_norm) {
  PlanOptions options;
  options.model = GraphModel::parse(lengths);
  options.train.loss.name = "mse";
  options.train.optimizer = "adagrad";
  options.train.optimizer_options = {{"lr", 0.01}, {"lr_decay", 0.5}};
  options.train.clip_norm = clip_norm;
  options.ranks = ranks;
  EXPECT_TRUE(set_config(options.strategy, "pipeline.num_micro_batch", micro_batches).ok());
  Job job;
  Host host = test_host(2);
  auto plan = CompiledPlan::create(host, options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  job.plan = *plan;
  auto session = Session::create(host, job.plan, 7);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  job.session = std::move(*session);
  return job;
}

std::vector<Tensor> batch(int zero_row) {
  Tensor x(TensorType{DType::f32, {8, 4}}), target(TensorType{DType::f32, {8}});
  for (int i = 0; i < 32; ++i) x.set(i, i / 4 == zero_row ? 0.0 : 0.1 * i - 1);
  for (int i = 0; i < 8; ++i) target.set(i, 1);
  return {x, target};
}

struct Layout {
  int64_t ranks;
  const char* micro_batches;
};
class NotFinite : public testing::TestWithParam<Layout> {
 protected:
  static int64_t rank_of_row(int64_t row) { return row / (8 / GetParam().ranks); }
};

TEST_P(NotFinite, GradientsUnderAFiniteLossAreNotApplied) {
  for (double clip_norm : {0.0, 1.0}) {
    Job job = start(GetParam().ranks, GetParam().micro_batches, clip_norm),
        other = start(GetParam().ranks, GetParam().micro_batches, clip_norm);
    StepMetrics metrics;
    ASSERT_TRUE(job.session->step(batch(-1), metrics).ok());
    EXPECT_DOUBLE_EQ(metrics.learning_rate, 0.01) << "the rate of the options, whatever the optimizer makes of it";
    const Tensor before = *job.session->state("w"), bias = *job.session->state("b");
    ASSERT_TRUE(job.session->step(batch(5), metrics).ok()) << "a skipped step is not an error";
    EXPECT_EQ(job.session->steps_done(), 1);
    EXPECT_FALSE(job.session->facts().last_applied);
    const Status status = metrics.skipped;
    EXPECT_EQ(status.code(), Code::not_finite);
    EXPECT_NE(status.message().find("the gradient of w is not finite, though the loss is; the step was not applied"),
              std::string::npos)
        << status.to_string();
    EXPECT_NE(status.message().find("nan comes first out of node "), std::string::npos) << status.to_string();
    EXPECT_NE(status.message().find(status.where()), std::string::npos) << status.where();
    EXPECT_NE(status.where(), "w");
    EXPECT_EQ(status.rank(), rank_of_row(5));
    EXPECT_TRUE(identical(*job.session->state("w"), before));
    EXPECT_TRUE(identical(*job.session->state("b"), bias));
    // The session goes on as if that batch had never been.
    ASSERT_TRUE(job.session->step(batch(-1), metrics).ok());
    EXPECT_TRUE(metrics.skipped.ok());
    EXPECT_TRUE(job.session->facts().last_applied);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(other.session->step(batch(-1), metrics).ok());
    EXPECT_TRUE(identical(*job.session->state("w"), *other.session->state("w")));
    EXPECT_EQ(job.session->memory_bytes_used(), job.plan->memory_bytes_peak());
  }
}

TEST_P(NotFinite, AnInputThatHoldsNanIsNamedWithItsPlace) {
  Job job = start(GetParam().ranks, GetParam().micro_batches, 0);
  std::vector<Tensor> inputs = batch(-1);
  inputs[0].set(5 * 4 + 2, NAN);
  StepMetrics metrics;
  EXPECT_EQ(job.session->facts().last_output("loss"), nullptr) << "before the first step";
  ASSERT_TRUE(job.session->step(inputs, metrics).ok());
  ASSERT_NE(job.session->facts().last_output("loss"), nullptr);
  EXPECT_TRUE(std::isnan(job.session->facts().last_output("loss")->get(0)));
  const Status status = metrics.skipped;
  EXPECT_EQ(status.code(), Code::not_finite);
  EXPECT_NE(status.message().find("loss is nan; the step was not applied. input x holds nan at [5,2]"),
            std::string::npos)
      << status.to_string();
  EXPECT_EQ(status.where(), "x");
  EXPECT_EQ(status.rank(), -1) << "the caller gave it";
}

INSTANTIATE_TEST_SUITE_P(Layouts, NotFinite,
                         testing::Values(Layout{1, "1"}, Layout{1, "4"}, Layout{2, "1"}, Layout{2, "2"},
                                         Layout{4, "1"}));

}  // namespace
}  // namespace epl::not_finite_test
