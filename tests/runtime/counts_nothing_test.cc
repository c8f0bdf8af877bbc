// Batches in which nothing counts: all targets ignored, or of classes of weight 0. The loss is a mean over nothing, no
// number, and the step changes nothing.
#include <gtest/gtest.h>

#include <cmath>

#include "core/runtime/evaluation.h"
#include "tests/runtime/graph_model.h"

namespace epl::counts_nothing_test {
namespace {

constexpr std::string_view classifier = R"(graph classifier(x: f32[8,4] batch 0) {
  w: f32[4,3] = param
  v: f32[3,3] = param
  forward:
  h: f32[8,3] = matmul(x, w)
  y: f32[8,3] = matmul(h, v)
  output y = y
}
)";

// The losses of a model itself: a mean of what a mask counts, alone, and beside one of everything.
constexpr std::string_view own_loss = R"(graph own(x: f32[8,4] batch 0, mask: f32[8,3] batch 0) {
  w: f32[4,3] = param
  v: f32[4,3] = param
  forward:
  h: f32[8,3] = matmul(x, w)
  squares: f32[8,3] = mul(h, h)
  masked: f32[8,3] = mul(squares, mask)
  total: f32[] = sum(masked) {axes=[0,1],keep=false}
  count: f32[] = sum(mask) {axes=[0,1],keep=false}
  alone: f32[] = counted_mean(total, count)
  g: f32[8,3] = matmul(x, v)
  both: f32[8,3] = mul(g, g)
  rest: f32[] = sum(both) {axes=[0,1],keep=false}
  beside: f32[] = add(alone, rest)
  output alone = alone
  output beside = beside
}
)";

std::vector<std::string>& warnings() {
  static std::vector<std::string> all;
  return all;
}

struct Layout {
  int64_t ranks;
  const char* micro_batches;
};

struct Job {
  std::shared_ptr<const CompiledPlan> plan;
  std::unique_ptr<Session> session;
  StepMetrics step(const std::vector<Tensor>& inputs) {
    StepMetrics metrics;
    const Status status = session->step(inputs, metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(metrics.skipped.ok()) << metrics.skipped.to_string();
    return metrics;
  }
};

Job start(std::string_view graph, const LossSpec& loss, Layout layout, bool keep_gradients = false) {
  PlanOptions options;
  options.model = GraphModel::parse(graph);
  options.train.loss = loss;
  options.train.optimizer = "adamw";
  options.train.optimizer_options = {{"lr", 0.01}, {"weight_decay", 0.1}};
  options.train.clip_norm = 1;
  options.train.keep_gradients = keep_gradients;
  options.ranks = layout.ranks;
  EXPECT_TRUE(set_config(options.strategy, "pipeline.num_micro_batch", layout.micro_batches).ok());
  Host host = test_host(2);
  host.log = [](LogLevel level, std::string_view text) {
    if (level == LogLevel::warning) warnings().emplace_back(text);
  };
  Job job;
  auto plan = CompiledPlan::create(host, options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  job.plan = *plan;
  auto session = Session::create(host, job.plan, {.seed = 7});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  job.session = std::move(*session);
  return job;
}

Tensor samples() {
  Tensor x(TensorType{DType::f32, {8, 4}});
  for (int i = 0; i < 32; ++i) x.set(i, 0.1 * i - 1.3);
  return x;
}
// A batch of targets, of which those from `first` on are `rest`.
std::vector<Tensor> batch(int first, int64_t rest) {
  Tensor target(TensorType{DType::i64, {8}});
  for (int i = 0; i < 8; ++i) target.set_int(i, i < first ? i % 3 : rest);
  return {samples(), target};
}
std::vector<Tensor> masked_batch(double mask) {
  Tensor counts(TensorType{DType::f32, {8, 3}});
  for (int i = 0; i < 24; ++i) counts.set(i, mask);
  return {samples(), counts};
}

std::vector<Tensor> state_of(Job& job) {
  std::vector<Tensor> all;
  for (const StateSlot& slot : job.plan->state().slots()) all.push_back(*job.session->state().get(slot.name));
  return all;
}
void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(identical(a[i], b[i])) << "state " << i;
}

class CountsNothing : public testing::TestWithParam<Layout> {};

TEST_P(CountsNothing, TheStepChangesNothingButItsNumber) {
  LossSpec plain{.name = "softmax_cross_entropy"}, weighted = plain, smooth = plain;
  weighted.options = {{"class_weights", Doubles{1, 2, 0}}};
  smooth.options = {{"label_smoothing", 0.1}};
  const struct {
    const LossSpec& loss;
    int64_t rest;
  } cases[] = {{plain, -100}, {weighted, -100}, {weighted, 2}, {smooth, -100}};
  for (const auto& c : cases) {
    Job job = start(classifier, c.loss, GetParam()), other = start(classifier, c.loss, GetParam());
    EXPECT_FALSE(job.step(batch(8, 0)).counts_nothing);
    const std::vector<Tensor> before = state_of(job);
    const StepMetrics metrics = job.step(batch(0, c.rest));
    EXPECT_TRUE(metrics.counts_nothing);
    EXPECT_TRUE(std::isnan(metrics.loss));
    EXPECT_EQ(metrics.gradient_norm, 0);
    EXPECT_EQ(job.session->host_state().steps_done(), 2);
    expect_same(state_of(job), before);
    EXPECT_FALSE(job.step(batch(8, 0)).counts_nothing);
    other.step(batch(8, 0));
    other.session->host_state().set_steps_done(2);
    other.step(batch(8, 0));
    expect_same(state_of(job), state_of(other));
  }
}

// What a rank or a micro-batch counts says nothing by itself.
TEST_P(CountsNothing, InAPartOfTheBatchIsNothingSpecial) {
  Job job = start(classifier, {.name = "softmax_cross_entropy"}, GetParam()),
      full = start(classifier, {.name = "softmax_cross_entropy"}, {1, "1"});
  for (Job* one : {&job, &full}) {
    const StepMetrics metrics = one->step(batch(2, -100));
    EXPECT_FALSE(metrics.counts_nothing);
    EXPECT_TRUE(std::isfinite(metrics.loss));
  }
  expect_same({*job.session->state().get("w"), *job.session->state().get("v")},
              {*full.session->state().get("w"), *full.session->state().get("v")});
}

TEST_P(CountsNothing, InALossOfTheModel) {
  Job job = start(own_loss, {.name = "output:alone"}, GetParam());
  EXPECT_FALSE(job.step(masked_batch(1)).counts_nothing);
  const std::vector<Tensor> before = state_of(job);
  const StepMetrics metrics = job.step(masked_batch(0));
  EXPECT_TRUE(metrics.counts_nothing);
  EXPECT_TRUE(std::isnan(metrics.loss));
  expect_same(state_of(job), before);
}

// The other part of a loss trains on, as in PyTorch, and the loss is no number.
TEST_P(CountsNothing, OneLossOfTwo) {
  Job job = start(own_loss, {.name = "output:beside"}, GetParam());
  job.step(masked_batch(1));
  const Tensor w = *job.session->state().get("w"), v = *job.session->state().get("v");
  const StepMetrics metrics = job.step(masked_batch(0));
  EXPECT_FALSE(metrics.counts_nothing);
  EXPECT_TRUE(std::isnan(metrics.loss));
  EXPECT_FALSE(identical(*job.session->state().get("v"), v));
  for (const char* name : {"w", "v"})
    for (int64_t i = 0; i < 12; ++i) EXPECT_TRUE(std::isfinite(job.session->state().get(name)->get(i)));
}

TEST_P(CountsNothing, KeptGradientsAreZero) {
  Job job = start(classifier, {.name = "softmax_cross_entropy"}, GetParam(), true);
  StepMetrics metrics;
  ASSERT_TRUE(job.session->gradients(batch(8, 0), metrics).ok());
  EXPECT_NE(job.session->state().get("w.gradient")->get(0), 0);
  const Tensor before = *job.session->state().get("w");
  ASSERT_TRUE(job.session->gradients(batch(0, -100), metrics).ok());
  EXPECT_TRUE(metrics.counts_nothing);
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(job.session->state().get("w.gradient")->get(i), 0);
  EXPECT_TRUE(identical(*job.session->state().get("w"), before));
  job.step(batch(8, 0));
  EXPECT_NE(job.session->state().get("w.gradient")->get(0), 0);
  const Tensor stepped = *job.session->state().get("w");
  job.step(batch(0, -100));
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(job.session->state().get("w.gradient")->get(i), 0);
  EXPECT_TRUE(identical(*job.session->state().get("w"), stepped));
}

// A share of each class of weight 0 is spread over the others, so that the sum is not zero.
TEST_P(CountsNothing, SmoothedClassesOfWeightZero) {
  LossSpec loss{.name = "softmax_cross_entropy"};
  loss.options = {{"class_weights", Doubles{1, 2, 0}}, {"label_smoothing", 0.2}};
  Job job = start(classifier, loss, GetParam());
  const std::vector<Tensor> before = state_of(job);
  const StepMetrics metrics = job.step(batch(0, 2));
  EXPECT_TRUE(metrics.counts_nothing);
  EXPECT_TRUE(std::isnan(metrics.loss)) << metrics.loss;
  expect_same(state_of(job), before);
  EXPECT_TRUE(std::isfinite(job.step(batch(8, 0)).loss));
}

// Whatever the loss is.
TEST(CountsNothingAtAll, NoSample) {
  std::string none(classifier);
  for (size_t at = none.find("[8,"); at != std::string::npos; at = none.find("[8,")) none.replace(at, 3, "[0,");
  for (const char* name : {"softmax_cross_entropy", "mse", "bce_with_logits"}) {
    SCOPED_TRACE(name);
    const bool classes = std::string_view(name) == "softmax_cross_entropy";
    Job job = start(none, {.name = name}, {1, "1"});
    const Tensor w = *job.session->state().get("w");
    const StepMetrics metrics =
        job.step({Tensor(TensorType{DType::f32, {0, 4}}),
                  classes ? Tensor(TensorType{DType::i64, {0}}) : Tensor(TensorType{DType::f32, {0, 3}})});
    EXPECT_TRUE(metrics.counts_nothing);
    EXPECT_TRUE(std::isnan(metrics.loss));
    EXPECT_TRUE(identical(*job.session->state().get("w"), w));
  }
}

// Whoever makes the step: a job, a caller of the C API, or the phases of a step.
TEST_P(CountsNothing, TheReasonIsSaid) {
  Job job = start(classifier, {.name = "softmax_cross_entropy"}, GetParam(), true);
  warnings().clear();
  job.step(batch(8, 0));
  EXPECT_TRUE(warnings().empty());
  job.step(batch(0, -100));
  StepMetrics metrics;
  ASSERT_TRUE(job.session->gradients(batch(0, -100), metrics).ok());
  EXPECT_FALSE(std::signbit(metrics.loss));
  ASSERT_TRUE(job.session->apply(metrics).ok());
  ASSERT_EQ(warnings().size(), 2u);  // an update has no batch of its own
  for (size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(
        warnings()[i].starts_with(cat("step ", i + 2, ": nothing in its batch counts: every target is ignored")))
        << warnings()[i];
}

TEST_P(CountsNothing, InTwoPartsIsAsInOne) {
  Job phases = start(classifier, {.name = "softmax_cross_entropy"}, GetParam(), true),
      full = start(classifier, {.name = "softmax_cross_entropy"}, GetParam(), true);
  for (Job* one : {&phases, &full}) one->step(batch(8, 0));  // the moments are not zero
  StepMetrics metrics;
  ASSERT_TRUE(phases.session->gradients(batch(0, -100), metrics).ok());
  const Tensor gradient = *phases.session->state().get("w.gradient");
  ASSERT_TRUE(phases.session->apply(metrics).ok());
  EXPECT_TRUE(metrics.counts_nothing);
  EXPECT_TRUE(std::isnan(metrics.loss));
  EXPECT_EQ(metrics.gradient_norm, 0);
  EXPECT_EQ(phases.session->host_state().steps_done(), 2);
  full.step(batch(0, -100));
  for (const char* name : {"w", "v"})
    EXPECT_TRUE(identical(*phases.session->state().get(name), *full.session->state().get(name)));
  EXPECT_EQ(phases.session->apply(metrics).code(), Code::misuse);  // they were applied
  for (Job* one : {&phases, &full}) one->step(batch(8, 0));
  for (const char* name : {"w", "v"})
    EXPECT_TRUE(identical(*phases.session->state().get(name), *full.session->state().get(name)));
  // Gradients that the host sets count.
  const Tensor before = *phases.session->state().get("w");
  ASSERT_TRUE(phases.session->gradients(batch(0, -100), metrics).ok());
  ASSERT_TRUE(phases.session->state().set("w.gradient", gradient).ok());
  ASSERT_TRUE(phases.session->apply(metrics).ok());
  EXPECT_FALSE(identical(*phases.session->state().get("w"), before));
}

// A batch that cannot be computed says nothing in the update by the gradients before it.
TEST_P(CountsNothing, AnUpdateHasTheLossOfItsGradients) {
  Job job = start(classifier, {.name = "softmax_cross_entropy"}, GetParam(), true),
      twin = start(classifier, {.name = "softmax_cross_entropy"}, GetParam(), true);
  StepMetrics good, bad, applied, alone;
  ASSERT_TRUE(job.session->gradients(batch(8, 0), good).ok());
  std::vector<Tensor> broken = batch(8, 0);
  broken[0].set(5, std::nan(""));
  ASSERT_TRUE(job.session->gradients(broken, bad).ok());
  EXPECT_FALSE(bad.skipped.ok());
  EXPECT_TRUE(std::isnan(bad.loss));
  ASSERT_TRUE(job.session->apply(applied).ok());
  EXPECT_EQ(applied.loss, good.loss);
  ASSERT_TRUE(twin.session->gradients(batch(8, 0), good).ok());
  ASSERT_TRUE(twin.session->apply(alone).ok());
  EXPECT_EQ(applied.loss, alone.loss);
  expect_same(state_of(job), state_of(twin));
}

TEST_P(CountsNothing, AnEvaluationIsOfTheOtherBatches) {
  for (const bool own : {false, true}) {
    const LossSpec loss{.name = own ? "output:alone" : "softmax_cross_entropy"};
    Job job = start(own ? own_loss : classifier, loss, GetParam());
    auto all = Evaluation::create(job.plan, "none"), some = Evaluation::create(job.plan, "none"),
         none = Evaluation::create(job.plan, "none");
    ASSERT_TRUE(all.ok() && some.ok() && none.ok());
    const std::vector<Tensor> counted = own ? masked_batch(0.5) : batch(5, -100),
                              nothing = own ? masked_batch(0) : batch(0, -100);
    ASSERT_TRUE((*all)->add(*job.session, counted).ok());
    ASSERT_TRUE((*all)->add(*job.session, nothing).ok());
    ASSERT_TRUE((*some)->add(*job.session, counted).ok());
    ASSERT_TRUE((*none)->add(*job.session, nothing).ok());
    EXPECT_TRUE(std::isfinite((*some)->results()[0].value));
    EXPECT_EQ((*all)->results()[0].value, (*some)->results()[0].value);
    EXPECT_TRUE(std::isnan((*none)->results()[0].value));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, CountsNothing,
                         testing::Values(Layout{1, "1"}, Layout{1, "4"}, Layout{2, "1"}, Layout{2, "2"},
                                         Layout{4, "1"}));

}  // namespace
}  // namespace epl::counts_nothing_test
