// A step whose loss or gradients are not finite changes nothing, on any rank, and says where the first NaN came from.
#include <gtest/gtest.h>

#include "core/compile/plan_memory.h"
#include "core/runtime/session.h"
#include "tests/runtime/graph_model.h"

namespace epl::not_finite_test {
namespace {

// The length of each row of x w, taken apart so that nobody sees that it is a norm: its gradient is NaN where a row is
// zero, though the length is 0.
constexpr std::string_view lengths = R"(graph lengths(x: f32[8,4] batch 0) {
  w: f32[4,3] = param
  b: f32[1] = param
  forward:
  h: f32[8,3] = matmul(x, w)
  squares: f32[8,3] = mul(h, h)
  n: f32[8] = sum(squares) {axes=[1],keep=false}
  zero: f32[8] = sub(n, n)
  apart: f32[8] = sub(n, zero)
  length: f32[8] = sqrt(apart)
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
  auto session = Session::create(host, job.plan, {.seed = 7});
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
    const Tensor before = *job.session->state().get("w"), bias = *job.session->state().get("b");
    ASSERT_TRUE(job.session->step(batch(5), metrics).ok()) << "a skipped step is not an error";
    EXPECT_EQ(job.session->host_state().steps_done(), 1);
    EXPECT_FALSE(job.session->facts().last_applied);
    const Status status = metrics.skipped;
    EXPECT_EQ(status.code(), Code::not_finite);
    EXPECT_NE(status.message().find("the gradient of w is not finite, though the loss is; the step was not applied"),
              std::string::npos)
        << status.to_string();
    EXPECT_NE(status.message().find(" comes first out of node length.gradient"), std::string::npos)
        << status.to_string();
    EXPECT_NE(status.message().find(status.where()), std::string::npos) << status.where();
    EXPECT_NE(status.where(), "w");
    EXPECT_EQ(status.rank(), rank_of_row(5));
    EXPECT_TRUE(identical(*job.session->state().get("w"), before));
    EXPECT_TRUE(identical(*job.session->state().get("b"), bias));
    // The session goes on as if that batch had never been.
    ASSERT_TRUE(job.session->step(batch(-1), metrics).ok());
    EXPECT_TRUE(metrics.skipped.ok());
    EXPECT_TRUE(job.session->facts().last_applied);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(other.session->step(batch(-1), metrics).ok());
    EXPECT_TRUE(identical(*job.session->state().get("w"), *other.session->state().get("w")));
    EXPECT_EQ(job.session->memory_bytes_used(), PlanMemory(*job.plan).peak());
  }
}

TEST_P(NotFinite, AnInputThatHoldsNanIsNamedWithItsPosition) {
  Job job = start(GetParam().ranks, GetParam().micro_batches, 0);
  std::vector<Tensor> inputs = batch(-1);
  inputs[0].set(5 * 4 + 2, NAN);
  StepMetrics metrics;
  EXPECT_EQ(job.session->facts().last_output("loss"), nullptr) << "before the first step";
  ASSERT_TRUE(job.session->step(inputs, metrics).ok());
  EXPECT_TRUE(std::isnan(metrics.loss));
  EXPECT_EQ(job.session->facts().last_output("loss"), nullptr) << "a skipped step leaves nothing for the next call";
  const Status status = metrics.skipped;
  EXPECT_EQ(status.code(), Code::not_finite);
  EXPECT_NE(status.message().find("loss is nan; the step was not applied. input x holds nan at [5,2]"),
            std::string::npos)
      << status.to_string();
  EXPECT_EQ(status.where(), "x");
  EXPECT_EQ(status.rank(), -1) << "the caller gave it";
}

// What the forward pass of a model meets first, and the node that is to be named.
struct Overflow {
  const char *what, *nodes, *culprit;
  bool in_all_rows = false;
};
const Overflow overflows[] = {
    {"an exponential", "e: f32[8,3] = exp(h)\n  y: f32[8,3] = matmul(e, v)", "e"},
    {"a product", "e: f32[8,3] = mul(h, h)\n  f: f32[8,3] = mul(e, e)\n  y: f32[8,3] = matmul(f, v)", "f"},
    {"a division in the middle of a region",
     "one: f32[8,3] = sub(h, h)\n  e: f32[8,3] = div(h, one)\n  t: f32[8,3] = tanh(e)\n  u: f32[8,3] = sub(e, t)\n"
     "  y: f32[8,3] = matmul(u, v)",
     "e", true},
    {"a logarithm whose infinity is masked away, and an exponential",
     "zero: f32[8,3] = sub(h, h)\n  m: f32[8,3] = log(zero)\n  p: f32[8,3] = exp(m)\n  e: f32[8,3] = exp(h)\n"
     "  s: f32[8,3] = add(e, p)\n  y: f32[8,3] = matmul(s, v)",
     "e"},
    {"an infinity less itself", "e: f32[8,3] = exp(h)\n  f: f32[8,3] = sub(e, e)\n  y: f32[8,3] = matmul(f, v)", "e"},
    {"a sum",
     "e: f32[8,1] = sum(h) {axes=[1]}\n  f: f32[8,3] = mul(h, e)\n  g: f32[8,3] = mul(f, f)\n"
     "  k: f32[8,3] = mul(g, f)\n  y: f32[8,3] = matmul(k, v)",
     "g"},
};

// The infinity of the forward pass is named, not what it makes of the backward pass, in every type and layout.
TEST_P(NotFinite, AnOverflowIsNamedWhereItBegins) {
  const auto in_type = [](std::string text, const std::string& type) {
    for (size_t at = 0; (at = text.find("f32", at)) != std::string::npos; at += type.size()) text.replace(at, 3, type);
    return text;
  };
  for (const char* type : {"f32", "f16", "bf16", "f64"}) {
    for (const Overflow& c : overflows) {
      SCOPED_TRACE(cat(c.what, " in ", type));
      const std::string text = in_type(cat(R"(graph overflow(x: f32[8,4] batch 0) {
  w: f32[4,3] = param
  v: f32[3,3] = param
  forward:
  h: f32[8,3] = matmul(x, w)
  )",
                                           c.nodes, "\n  output y = y\n}\n"),
                                       type);
      PlanOptions options;
      options.model = GraphModel::parse(text);
      options.train.loss.name = "mse";
      options.ranks = GetParam().ranks;
      ASSERT_TRUE(set_config(options.strategy, "pipeline.num_micro_batch", GetParam().micro_batches).ok());
      Host host = test_host(2);
      auto plan = CompiledPlan::create(host, options);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      auto session = Session::create(host, *plan, {.seed = 7});
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      const DType dtype = *parse_dtype(type);
      Tensor x(TensorType{dtype, {8, 4}}), target(TensorType{dtype == DType::f64 ? dtype : DType::f32, {8, 3}});
      // Large in one row alone, as large as the type needs for its exponential, or for the fourth power, to overflow.
      const double large = dtype == DType::f16 ? 150 : dtype == DType::f64 ? 1e110 : 1e14;
      for (int i = 0; i < 32; ++i) x.set(i, i / 4 == 5 ? large : 0.01 * i);
      StepMetrics metrics;
      const Status ran = (*session)->step(std::vector<Tensor>{x, target}, metrics);
      ASSERT_TRUE(ran.ok()) << ran.to_string();
      EXPECT_EQ(metrics.skipped.code(), Code::not_finite);
      EXPECT_EQ(metrics.skipped.where(), c.culprit) << metrics.skipped.to_string();
      EXPECT_NE(metrics.skipped.message().find(cat("comes first out of node ", c.culprit, " (")), std::string::npos)
          << metrics.skipped.to_string();
      EXPECT_EQ(metrics.skipped.rank(), c.in_all_rows ? 0 : rank_of_row(5));
    }
  }
}

// An index that two inputs make is not known before the step: the node that gathers by it says which one it was.
TEST_P(NotFinite, AnIndexOutOfRangeIsNamed) {
  PlanOptions options;
  options.model = GraphModel::parse(R"(graph picks(a: i64[8] batch 0, b: i64[8] batch 0) {
  table: f32[10,3] = param
  forward:
  sum: i64[8] = add(a, b)
  y: f32[8,3] = gather(table, sum) {axis=0}
  output y = y
}
)");
  options.train.loss.name = "mse";
  options.ranks = GetParam().ranks;
  ASSERT_TRUE(set_config(options.strategy, "pipeline.num_micro_batch", GetParam().micro_batches).ok());
  Host host = test_host(2);
  auto plan = CompiledPlan::create(host, options);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  auto session = Session::create(host, *plan, {.seed = 7});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  Tensor a(TensorType{DType::i64, {8}}), b(TensorType{DType::i64, {8}}), target(TensorType{DType::f32, {8, 3}});
  a.set_int(5, 7);
  b.set_int(5, 8);
  StepMetrics metrics;
  const Status ran = (*session)->step(std::vector<Tensor>{a, b, target}, metrics);
  ASSERT_TRUE(ran.ok()) << ran.to_string();
  EXPECT_EQ(metrics.skipped.code(), Code::not_finite);
  EXPECT_NE(metrics.skipped.message().find("nan comes first out of node y (gather): an index is out of range, as its "
                                           "operand holds 15, which is not an index into 10 rows; they count from 0"),
            std::string::npos)
      << metrics.skipped.to_string();
}

INSTANTIATE_TEST_SUITE_P(Layouts, NotFinite,
                         testing::Values(Layout{1, "1"}, Layout{1, "4"}, Layout{2, "1"}, Layout{2, "2"},
                                         Layout{4, "1"}));

}  // namespace
}  // namespace epl::not_finite_test
