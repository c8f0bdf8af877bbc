// batch.semantics = per_micro_batch: each micro-batch is independent, so that a step over several is the mean of
// steps over each one alone, from the same weights; running statistics too. Which samples are in a micro-batch does not
// depend on the ranks, so every layout of as many micro-batches has the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/compile/plan_memory.h"
#include "tests/runtime/trained.h"
#include "tests/thirds.h"

namespace epl::per_micro_batch_test {
namespace {

// A batch norm with running statistics; a gate that lets three samples of a batch pass; a term of the loss that
// multiplies two means over the batch, as what balances experts; dropout where DRAW is put in.
constexpr std::string_view coupled = R"(graph coupled(x: f32[B,12] batch 0, wanted: f32[B,4] batch 0) {
  w1: f32[12,16] = param
  gamma: f32[16] = param
  wg: f32[16,1] = param
  w2: f32[16,4] = param
  running: f32[16] = buffer
  share: f32[] = const f32[](INVERSE)
  epsilon: f32[] = const f32[](0.001)
  keeps: f32[] = const f32[](0.9)
  takes: f32[] = const f32[](0.1)
  half: f32[] = const f32[](0.47)
  room: f32[] = const f32[](2.5)
  forward:
  h: f32[B,16] = matmul(x, w1)
  total: f32[1,16] = sum(h) {axes=[0]}
  mean: f32[1,16] = mul(total, share)
  centred: f32[B,16] = sub(h, mean)
  squares: f32[B,16] = mul(centred, centred)
  spread: f32[1,16] = sum(squares) {axes=[0]}
  variance: f32[1,16] = mul(spread, share)
  padded: f32[1,16] = add(variance, epsilon)
  deviation: f32[1,16] = sqrt(padded)
  normed: f32[B,16] = div(centred, deviation)
  scaled: f32[B,16] = mul(normed, gamma)
  kept: f32[16] = mul(running, keeps)
  mean_1: f32[16] = reshape(mean) {shape=[16]}
  taken: f32[16] = mul(mean_1, takes)
  next: f32[16] = add(kept, taken)
  a: f32[B,16] = tanh(scaled)
  DRAW
  scores: f32[B,1] = matmul(d, wg)
  gates: f32[B,1] = sigmoid(scores)
  picked: bool[B,1] = greater(gates, half)
  ones: f32[B,1] = cast(picked) {to=@f32}
  places: f32[B,1] = cum_sum(ones) {axis=0}
  fits: bool[B,1] = less(places, room)
  open: f32[B,1] = cast(fits) {to=@f32}
  gate: f32[B,1] = mul(gates, open)
  passed: f32[B,16] = mul(d, gate)
  y: f32[B,4] = matmul(passed, w2)
  missed: f32[B,4] = sub(y, wanted)
  missed_squares: f32[B,4] = mul(missed, missed)
  misses: f32[1,1] = sum(missed_squares) {axes=[0,1]}
  miss: f32[1,1] = mul(misses, share)
  answers: f32[1,4] = sum(y) {axes=[0]}
  answer: f32[1,4] = mul(answers, share)
  sizes: f32[1,4] = sum(missed_squares) {axes=[0]}
  size: f32[1,4] = mul(sizes, share)
  balances: f32[1,4] = mul(answer, size)
  balance: f32[1,1] = sum(balances) {axes=[0,1]}
  loss_11: f32[1,1] = add(miss, balance)
  loss: f32[] = reshape(loss_11) {shape=[]}
  output loss = loss
  output y = y
  commit running = next
}
)";
constexpr std::string_view no_draw = "d: f32[B,16] = identity(a)";
constexpr std::string_view draw = "d: f32[B,16], drawn: bool[B,16] = dropout(a) {ratio=0.3}";

// Each sample by itself, where nothing can differ.
constexpr std::string_view separate = R"(graph separate(x: f32[B,12] batch 0, wanted: f32[B,4] batch 0) {
  w1: f32[12,16] = param
  w2: f32[16,4] = param
  share: f32[] = const f32[](INVERSE)
  forward:
  h: f32[B,16] = matmul(x, w1)
  a: f32[B,16] = tanh(h)
  DRAW
  y: f32[B,4] = matmul(d, w2)
  missed: f32[B,4] = sub(y, wanted)
  missed_squares: f32[B,4] = mul(missed, missed)
  misses: f32[1,1] = sum(missed_squares) {axes=[0,1]}
  miss: f32[1,1] = mul(misses, share)
  loss: f32[] = reshape(miss) {shape=[]}
  output loss = loss
  output y = y
}
)";

std::string replaced(std::string text, std::string_view what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

// A model of as many samples as are asked for.
class AnyBatch : public GraphModel {
 public:
  AnyBatch(std::string text, int64_t samples) : text_(std::move(text)), samples_(samples) { of_ = with(samples); }
  const std::vector<ModelInitializer>& initializers() const override { return of_->initializers(); }
  Result<Graph> bind(const Binding& binding) const override {
    const auto x = binding.input_shapes.find("x");
    const int64_t samples = x == binding.input_shapes.end() ? samples_ : x->second[0];
    return with(samples)->bind({});
  }

 private:
  std::shared_ptr<const Model> with(int64_t samples) const {
    return GraphModel::parse(
        replaced(replaced(replaced(text_, "f32[B,", cat("f32[", samples, ",")), "bool[B,", cat("bool[", samples, ",")),
                 "INVERSE", cat(1.0 / static_cast<double>(samples))));
  }
  std::string text_;
  int64_t samples_;
  std::shared_ptr<const Model> of_;
};

struct Job {
  std::string name;
  int64_t ranks = 1;
  std::string strategy = "{}";
  std::vector<int> samples = {0, 1, 2, 3, 4, 5, 6, 7};
  int steps = 1;
};

Trained trained(std::string_view model, const Job& job) {
  Trained out;
  PlanOptions options;
  const auto count = static_cast<int64_t>(job.samples.size());
  options.model = std::make_shared<AnyBatch>(std::string(model), count);
  options.train.loss.name = "output:loss";
  options.train.optimizer = "sgd";
  options.train.optimizer_options = {{"lr", 0.5}};
  options.train_outputs = {"y"};
  options.ranks = job.ranks;
  auto strategy = parse_strategy(job.strategy);
  EXPECT_TRUE(strategy.ok()) << job.name << ": " << strategy.status().to_string();
  options.strategy = *strategy;
  auto plan = CompiledPlan::create(test_host(2), options);
  EXPECT_TRUE(plan.ok()) << job.name << ": " << plan.status().to_string();
  if (!plan.ok()) return out;
  auto session = Session::create(test_host(2), *plan, {.seed = 7});
  EXPECT_TRUE(session.ok()) << job.name << ": " << session.status().to_string();
  Tensor x(TensorType{DType::f32, {count, 12}}), wanted(TensorType{DType::f32, {count, 4}});
  for (int64_t i = 0; i < count; ++i) {
    const auto sample = static_cast<uint64_t>(job.samples[static_cast<size_t>(i)]);
    for (int64_t j = 0; j < 12; ++j) x.set(i * 12 + j, philox_uniform(sample, j) - 0.5);
    for (int64_t j = 0; j < 4; ++j) wanted.set(i * 4 + j, philox_uniform(sample + 100, j));
  }
  const std::vector<Tensor> inputs = {x, wanted};
  for (int step = 0; step < job.steps; ++step) {
    StepMetrics metrics;
    const Status status = (*session)->step(inputs, metrics);
    EXPECT_TRUE(status.ok()) << job.name << ": " << status.to_string();
    out.losses.push_back(metrics.loss);
  }
  out.predicted.push_back((*session)->results().step_output("y")->clone());
  const Status evaluated = (*session)->evaluate(inputs, out.evaluated);
  EXPECT_TRUE(evaluated.ok()) << job.name << ": " << evaluated.to_string();
  for (const StateSlot& slot : (*plan)->state().slots())
    out.state.emplace(slot.name, *(*session)->state().get(slot.name));
  EXPECT_EQ((*session)->memory_bytes_used(), PlanMemory(**plan).peak()) << job.name;
  return out;
}

Trained mean_of(const std::vector<Trained>& all) {
  Trained mean = all[0];
  mean.losses = {0};
  for (const Trained& one : all) mean.losses[0] += one.losses[0] / static_cast<double>(all.size());
  for (auto& [name, value] : mean.state) {
    value = value.clone();
    for (int64_t i = 0; i < value.elements(); ++i) {
      double sum = 0;
      for (const Trained& one : all) sum += one.state.at(name).get(i);
      value.set(i, sum / static_cast<double>(all.size()));
    }
  }
  return mean;
}

std::string per_micro_batch(int64_t micro_batches, const std::string& more = "") {
  return cat(R"({"batch.semantics": "per_micro_batch", "pipeline.num_micro_batch": )", micro_batches, more, "}");
}
std::string model_of(std::string_view text, std::string_view dropout = no_draw) {
  return replaced(std::string(text), "DRAW", std::string(dropout));
}

TEST(PerMicroBatch, AStepIsTheMeanOfStepsOverEach) {
  const std::string model = model_of(coupled);
  const auto alone = [&](std::vector<int> samples) {
    return trained(model, {.name = "alone", .samples = std::move(samples)});
  };
  const auto expect_mean = [](const Trained& found, Trained mean, const std::string& name) {
    mean.evaluated = found.evaluated;  // with the weights of the mean, which no run alone had
    mean.predicted = found.predicted;
    expect_near(found, mean, name, 1e-6, 2e-6);
  };
  const Trained two = trained(model, {.name = "2", .strategy = per_micro_batch(2)});
  expect_mean(two, mean_of({alone({0, 1, 2, 3}), alone({4, 5, 6, 7})}), "2");
  expect_mean(trained(model, {.name = "4", .strategy = per_micro_batch(4)}),
              mean_of({alone({0, 1}), alone({2, 3}), alone({4, 5}), alone({6, 7})}), "4");
  std::vector<Trained> each;
  for (int i = 0; i < 8; ++i) each.push_back(alone({i}));
  expect_mean(trained(model, {.name = "8", .strategy = per_micro_batch(8)}), mean_of(each), "8");
  // It is something else than the full batch together, and says so where nobody has asked for it.
  EXPECT_GT(std::abs(two.losses[0] - alone({0, 1, 2, 3, 4, 5, 6, 7}).losses[0]), 1e-4);
}

TEST(PerMicroBatch, AsManyMicroBatchesHaveTheSameBits) {
  EPL_ONE_OF_THREE();
  const std::string stages = R"(, "scopes": [
      {"name": "first", FIRST, "match": ["h", "total", "mean*", "centred", "squares", "spread", "variance", "padded",
       "deviation", "normed", "kept", "taken", "next"]},
      {"name": "second", SECOND, "match": "*"}], "pipeline.strategy": )";
  const auto of_degrees = [&](int first, int second) {
    return replaced(replaced(stages, "FIRST", cat(R"("replicate": )", first)), "SECOND",
                    cat(R"("replicate": )", second));
  };
  for (const std::string& model : {model_of(coupled), model_of(coupled, draw)}) {
    const Trained one = trained(model, {.name = "1 rank", .strategy = per_micro_batch(2), .steps = 3});
    std::vector<Job> jobs = {{"2 ranks", 2, per_micro_batch(2)}, {"4 ranks", 4, per_micro_batch(2)}};
    for (const char* schedule : {"GPipe", "1F1B", "ZB-H1"}) {
      const std::string row = cat("\"", schedule, "\"");
      jobs.push_back({cat("2 stages, ", schedule), 2, per_micro_batch(2, of_degrees(1, 1) + row)});
      jobs.push_back({cat("2 copies of 2 stages, ", schedule), 4, per_micro_batch(2, of_degrees(1, 1) + row)});
      jobs.push_back({cat("a stage of 2 and one of 1, ", schedule), 3, per_micro_batch(2, of_degrees(2, 1) + row)});
      jobs.push_back({cat("a stage of 1 and one of 4, ", schedule), 5, per_micro_batch(2, of_degrees(1, 4) + row)});
    }
    for (Job& job : jobs) {
      job.steps = 3;
      expect_same(trained(model, job), one, job.name);
    }
    const Trained each = trained(model, {.name = "one sample each", .strategy = per_micro_batch(8), .steps = 3});
    for (const Job& job :
         {Job{"2 ranks", 2, per_micro_batch(8)}, Job{"2 stages", 2, per_micro_batch(8, of_degrees(1, 1) + "\"1F1B\"")},
          Job{"a stage of 2 and one of 1", 3, per_micro_batch(8, of_degrees(2, 1) + "\"GPipe\"")}}) {
      expect_same(trained(model, {job.name, job.ranks, job.strategy, job.samples, 3}), each, job.name);
    }
  }
}

TEST(PerMicroBatch, WhereNothingIsCoupledItIsTheFullBatch) {
  for (const std::string& model : {model_of(separate), model_of(separate, draw)}) {
    const Trained one = trained(model, {.name = "whole", .steps = 3});
    for (const auto& [ranks, micro_batches] :
         {std::pair(1, 4), std::pair(2, 2), std::pair(2, 4), std::pair(1, 8), std::pair(2, 8)}) {
      const std::string name = cat(ranks, " ranks, ", micro_batches);
      expect_same(trained(model, {name, ranks, per_micro_batch(micro_batches), Job().samples, 3}), one, name);
    }
  }
}

// A mean of what `wanted` counts.
constexpr std::string_view counted = R"(graph counted(x: f32[B,12] batch 0, wanted: f32[B,4] batch 0) {
  w1: f32[12,4] = param
  forward:
  h: f32[B,4] = matmul(x, w1)
  squares: f32[B,4] = mul(h, h)
  masked: f32[B,4] = mul(squares, wanted)
  total: f32[] = sum(masked) {axes=[0,1],keep=false}
  count: f32[] = sum(wanted) {axes=[0,1],keep=false}
  loss: f32[] = counted_mean(total, count)
  output loss = loss
}
)";

// What a step over samples gives, of which those of `nothing` do not count.
struct Counted {
  StepMetrics metrics;
  Tensor before, after;
};
Counted step_of(const std::vector<int>& given, const std::vector<int>& nothing, int64_t ranks,
                const std::string& strategy) {
  Counted out;
  const auto count = static_cast<int64_t>(given.size());
  PlanOptions options;
  options.model = std::make_shared<AnyBatch>(std::string(counted), count);
  options.train.loss.name = "output:loss";
  options.train.optimizer = "sgd";
  options.train.optimizer_options = {{"lr", 0.5}};
  options.ranks = ranks;
  options.strategy = *parse_strategy(strategy);
  auto plan = CompiledPlan::create(test_host(2), options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  if (!plan.ok()) return out;
  auto session = Session::create(test_host(2), *plan, {.seed = 7});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  Tensor x(TensorType{DType::f32, {count, 12}}), wanted(TensorType{DType::f32, {count, 4}});
  for (int64_t i = 0; i < count; ++i) {
    const int sample = given[static_cast<size_t>(i)];
    for (int64_t j = 0; j < 12; ++j) x.set(i * 12 + j, philox_uniform(static_cast<uint64_t>(sample), j) - 0.5);
    const bool counts = std::ranges::find(nothing, sample) == nothing.end();
    for (int64_t j = 0; j < 4; ++j) wanted.set(i * 4 + j, counts ? 1 : 0);
  }
  out.before = (*session)->state().get("w1")->clone();
  const Status status = (*session)->step(std::vector<Tensor>{x, wanted}, out.metrics);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(out.metrics.skipped.ok()) << out.metrics.skipped.to_string();
  out.after = (*session)->state().get("w1")->clone();
  return out;
}

// The step by a sum goes as far as the steps over each together, in every layout; in float16 too, whose loss scale it
// is taken with.
TEST(PerMicroBatch, ASumOfGradientsIsThatOfStepsOverEach) {
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::string sum = R"(, "communication.gradients_reduce_method": "sum")";
  const auto strategy = [&](int micro_batches, const std::string& more) {
    return per_micro_batch(micro_batches, cat(sum, more));
  };
  const Counted one = step_of(all, {}, 1, strategy(4, ""));
  const Counted narrow =
      step_of(all, {}, 1, strategy(4, R"(, "amp.level": "O1", "amp.type": "f16", "amp.loss_scale": "1024")"));
  std::vector<Counted> alone;
  for (int i = 0; i < 8; i += 2) alone.push_back(step_of({i, i + 1}, {}, 1, "{}"));
  double loss = 0;
  for (const Counted& each : alone) loss += each.metrics.loss / 4;
  EXPECT_NEAR(one.metrics.loss, loss, 1e-6) << "the loss is their mean";
  for (int64_t i = 0; i < one.after.elements(); ++i) {
    double wanted = one.before.get(i);
    for (const Counted& each : alone) wanted += each.after.get(i) - each.before.get(i);
    EXPECT_NEAR(one.after.get(i), wanted, 1e-6) << i;
    EXPECT_NEAR(narrow.after.get(i), wanted, 2e-3) << i;
  }
  for (const char* more : {"", R"(, "zero.level": "v1")", R"(, "zero.level": "v2")"})
    EXPECT_TRUE(identical(step_of(all, {}, 2, strategy(4, more)).after, one.after)) << more;
  EXPECT_TRUE(identical(step_of(all, {}, 2, strategy(1, "")).after, step_of(all, {}, 1, "{}").after)) << "one of one";
}

TEST(PerMicroBatch, ASumNeedsThem) {
  PlanOptions options;
  options.model = std::make_shared<AnyBatch>(std::string(counted), 8);
  options.train.loss.name = "output:loss";
  options.strategy =
      *parse_strategy(R"({"communication.gradients_reduce_method": "sum", "pipeline.num_micro_batch": 2})");
  const auto plan = CompiledPlan::create(test_host(1), options);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), Code::unsupported);
  EXPECT_NE(plan.status().message().find("say batch.semantics = per_micro_batch"), std::string::npos)
      << plan.status().to_string();
}

// Its gradient is zero, as in PyTorch, and the others train on; where none counts the step changes nothing.
TEST(PerMicroBatch, OneMayCountNothing) {
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<Counted> alone = {step_of({0, 1}, {}, 1, "{}"), step_of({2, 3}, {}, 1, "{}"),
                                      step_of({6, 7}, {}, 1, "{}")};
  for (const int64_t ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const Counted some = step_of(all, {4, 5}, ranks, per_micro_batch(4));
    EXPECT_FALSE(some.metrics.counts_nothing);
    EXPECT_TRUE(some.metrics.counts_in_part);
    EXPECT_TRUE(std::isnan(some.metrics.loss));
    for (int64_t i = 0; i < some.after.elements(); ++i) {
      double wanted = some.before.get(i);
      for (const Counted& one : alone) wanted += (one.after.get(i) - one.before.get(i)) / 4;
      EXPECT_NEAR(some.after.get(i), wanted, 1e-6) << i;
    }
    const Counted none = step_of(all, all, ranks, per_micro_batch(4));
    EXPECT_TRUE(none.metrics.counts_nothing);
    EXPECT_TRUE(std::isnan(none.metrics.loss));
    EXPECT_TRUE(identical(none.after, none.before));
    const Counted whole = step_of(all, {}, ranks, per_micro_batch(4));
    EXPECT_FALSE(whole.metrics.counts_in_part);
    EXPECT_TRUE(std::isfinite(whole.metrics.loss));
  }
}

// A stage that begins at the last node of the loss: what an earlier one has of the loss's check comes with gradients.
TEST(PerMicroBatch, AStageMayBeginAtTheLastNode) {
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  const Counted one = step_of(all, {}, 1, per_micro_batch(4));
  ASSERT_TRUE(std::isfinite(one.metrics.loss));
  const std::string last = R"({"name": "last", "replicate": 1, "match": ["*"]})";
  const std::string two =
      cat(R"({"name": "first", "replicate": 1, "match": ["h", "squares", "masked", "total", "count"]}, )", last);
  const std::string four = cat(R"({"name": "a", "replicate": 1, "match": ["h"]},
                                  {"name": "b", "replicate": 1, "match": ["squares", "count"]},
                                  {"name": "c", "replicate": 1, "match": ["masked", "total"]}, )",
                               last);
  for (const auto& [schedule, scopes] :
       {std::pair("GPipe", two), std::pair("1F1B", two), std::pair("ZB-H1", two), std::pair("interleaved", four),
        std::pair("ZB-V", four), std::pair("DualPipe-V", four)}) {
    const std::string keys = cat(R"(, "pipeline.strategy": ")", schedule, R"(", "scopes": [)", scopes, "]");
    const bool open = schedule == std::string("interleaved");
    const Counted found =
        step_of(all, {}, 2, per_micro_batch(4, cat(keys, open ? R"(, "pipeline.virtual_stages": 2)" : "")));
    EXPECT_EQ(found.metrics.loss, one.metrics.loss) << schedule;
    EXPECT_TRUE(identical(found.after, one.after)) << schedule;
  }
}

TEST(PerMicroBatch, OneMicroBatchIsTheFullBatch) {
  const std::string model = model_of(coupled);
  expect_same(trained(model, {.name = "1", .strategy = per_micro_batch(1)}), trained(model, {.name = "whole"}), "1");
}

TEST(PerMicroBatch, SplitsAreNear) {
  const std::string model = model_of(coupled);
  const Trained one = trained(model, {.name = "1 rank", .strategy = per_micro_batch(2), .steps = 2});
  const Job split{
      .name = "split", .ranks = 2, .strategy = per_micro_batch(2, R"(, "default": {"split": 2})"), .steps = 2};
  expect_near(trained(model, split), one, split.name, 1e-5, 1e-5);
}

TEST(PerMicroBatch, OutputsOfAllSamplesTogetherAreRefused) {
  PlanOptions options;
  options.model = std::make_shared<AnyBatch>(
      replaced(model_of(coupled), "  output y = y", "  output y = y\n  output mean = mean"), 8);
  options.train.loss.name = "output:loss";
  options.strategy = *parse_strategy(per_micro_batch(2));
  const auto plan = CompiledPlan::create(test_host(1), options);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().message(),
            "output mean f32[1,16] is made of all samples of a micro-batch together, and batch.semantics = "
            "per_micro_batch has 2 of them; leave it out");
}

TEST(PerMicroBatch, WhatTheyDoNotDivideIsNamed) {
  PlanOptions options;
  options.model = std::make_shared<AnyBatch>(model_of(coupled), 6);
  options.train.loss.name = "output:loss";
  options.strategy = *parse_strategy(per_micro_batch(4));
  const auto plan = CompiledPlan::create(test_host(1), options);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().message(), "input x has 6 samples, which 4 micro-batches do not divide");
}

}  // namespace
}  // namespace epl::per_micro_batch_test
