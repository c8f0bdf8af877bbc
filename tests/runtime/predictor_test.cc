// A predictor has the weights of one step, never of two, whatever its session does meanwhile; progress is exact.
#include "core/runtime/predictor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <thread>

#include "core/base/check.h"
#include "core/compile/plan_memory.h"
#include "core/runtime/session_checkpoint.h"
#include "tests/runtime/mlp.h"

namespace epl::predictor_test {
namespace {

std::shared_ptr<Session> make_session(const PlanOptions& options, const Host& host) {
  auto plan = CompiledPlan::create(host, options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  auto session = Session::create(host, *plan, {.seed = 7});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  return std::move(*session);
}

std::vector<Tensor> batch_without_target(const Session& session) {
  std::vector<Tensor> inputs = mlp_batch(0);
  inputs.resize(session.plan().entry(EntryKind::predict)->inputs.size());
  return inputs;
}

Tensor predict(Session& session, std::span<const Tensor> inputs) {
  std::vector<Tensor> outputs = {Tensor(session.plan().entry(EntryKind::predict)->outputs[0].global_type)};
  const Status status = session.predict_into(inputs, outputs);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return outputs[0];
}

void step(Session& session, int s) {
  StepMetrics metrics;
  const Status status = session.step(mlp_batch(s), metrics);
  EXPECT_TRUE(status.ok()) << status.to_string();
}

uint64_t hash_of(const Tensor& tensor) {
  Hash64 hash;
  add_to_hash(hash, tensor);
  return hash.value();
}

TEST(Predictor, HasTheWeightsOfTheStepThatItLookedAt) {
  for (const int64_t ranks : {1, 2, 4}) {
    const Host host = test_host(4);
    const auto session = make_session(mlp_options(ranks, "2").value(), host);
    step(*session, 0);
    const std::vector<Tensor> inputs = batch_without_target(*session);
    const Tensor first = predict(*session, inputs);
    auto predictor = Predictor::create(session, nullptr);
    ASSERT_TRUE(predictor.ok()) << predictor.status().to_string();
    EXPECT_EQ((*predictor)->steps(), 1);
    step(*session, 1);
    EXPECT_TRUE(identical(predict(**(*predictor)->session(), inputs), first)) << ranks;
    ASSERT_TRUE((*predictor)->refresh().ok());
    EXPECT_EQ((*predictor)->steps(), 2);
    const Tensor second = predict(*session, inputs);
    EXPECT_FALSE(identical(first, second));
    EXPECT_TRUE(identical(predict(**(*predictor)->session(), inputs), second)) << ranks;
    // Without the optimizer's state: less than the session, and at least the weights.
    EXPECT_LT((*predictor)->memory_bytes(), ranks * PlanMemory(session->plan()).peak());
    EXPECT_GT((*predictor)->memory_bytes(), ranks * 4 * (12 * 16 + 16 + 16 * 4));
  }
}

TEST(Predictor, WorksAtOtherShapesAndInOtherLayouts) {
  const Host host = test_host(4);
  PlanOptions small = mlp_options(1, "1").value();
  std::string text(mlp);
  for (size_t at = 0; (at = text.find("[8,", at)) != std::string::npos;) text.replace(at, 3, "[2,");
  small.model = GraphModel::parse(text);
  small.training = false;
  for (const char* strategy : {"{}", R"({"default": {"split": 2}, "reproducible.level": "layout"})"}) {
    PlanOptions options = mlp_options(2, "1").value();
    options.strategy = parse_strategy(strategy).value();
    EPL_CHECK(set_config(small.strategy, "reproducible.level", options.strategy.text("reproducible.level")).ok(), "");
    auto shapes = CompiledPlan::create(host, small);
    ASSERT_TRUE(shapes.ok()) << shapes.status().to_string();
    const auto session = make_session(options, host);
    step(*session, 0);
    auto predictor = Predictor::create(session, *shapes);
    ASSERT_TRUE(predictor.ok()) << predictor.status().to_string();
    const std::vector<Tensor> inputs = batch_without_target(*session);
    const std::vector<Tensor> two = {take_samples(inputs[0], 0, 8, 4, 2)};
    for (int s = 1; s < 4; ++s) {
      const Tensor all = predict(*session, inputs);
      EXPECT_TRUE(identical(predict(**(*predictor)->session(), two), take_samples(all, 0, 8, 4, 2))) << strategy;
      step(*session, s);
      ASSERT_TRUE((*predictor)->refresh().ok());
    }
  }
}

TEST(Predictor, RefusesAPlanOfAnotherModel) {
  const Host host = test_host(1);
  const auto session = make_session(mlp_options(1, "1").value(), host);
  PlanOptions other = mlp_options(1, "1").value();
  other.training = false;
  const auto refused = [&](std::string_view from, const std::string& to, std::string_view says) {
    std::string text(mlp);
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
    other.model = GraphModel::parse(text);
    auto plan = CompiledPlan::create(host, other);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const auto predictor = Predictor::create(session, *plan);
    ASSERT_FALSE(predictor.ok());
    EXPECT_NE(predictor.status().message().find(says), std::string::npos) << predictor.status().to_string();
  };
  refused("w2", "v2", "does not read w2");
  refused("16", "20", "w1 is f32[12,16] in the session and f32[12,20]");
}

TEST(Predictor, OutlivesItsSessionAndSaysSo) {
  const Host host = test_host(1);
  auto session = make_session(mlp_options(1, "1").value(), host);
  step(*session, 0);
  auto predictor = Predictor::create(session, nullptr);
  ASSERT_TRUE(predictor.ok());
  const std::vector<Tensor> inputs = batch_without_target(*session);
  const Tensor before = predict(*session, inputs);
  session.reset();
  EXPECT_EQ((*predictor)->refresh().code(), Code::misuse);
  EXPECT_TRUE(identical(predict(**(*predictor)->session(), inputs), before));
}

TEST(Predictor, GivesFewerSamplesIntoTheCallersMemory) {
  const Host host = test_host(1);
  const auto session = make_session(mlp_options(1, "1").value(), host);
  const std::vector<Tensor> inputs = batch_without_target(*session);
  const Tensor all = predict(*session, inputs);
  const std::vector<Tensor> three = {take_samples(inputs[0], 0, 8, 0, 3)};
  std::vector<Tensor> room = {Tensor({DType::f32, {3, 4}})};
  ASSERT_TRUE(session->predict_into(three, room).ok());
  EXPECT_TRUE(identical(room[0], take_samples(all, 0, 8, 0, 3)));
  room[0] = Tensor({DType::f32, {4, 4}});
  EXPECT_EQ(session->predict_into(three, room).code(), Code::invalid_argument);
}

// What a step, a loaded checkpoint and a set parameter change is seen in full or not at all.
TEST(Predictor, NeverSeesHalfAnUpdate) {
  constexpr int steps = 200;
  for (const int64_t ranks : {1, 2}) {
    const Host host = test_host(2);
    const auto session = make_session(mlp_options(ranks, "1").value(), host);
    const std::vector<Tensor> inputs = batch_without_target(*session);
    std::vector<uint64_t> expected = {hash_of(predict(*session, inputs))};
    for (int s = 0; s < steps; ++s) {
      step(*session, s);
      expected.push_back(hash_of(predict(*session, inputs)));
    }
    const auto again = make_session(mlp_options(ranks, "1").value(), host);
    std::atomic<bool> done{false};
    std::atomic<int> looked{0};
    const auto look = [&] {
      auto predictor = Predictor::create(again, nullptr);
      ASSERT_TRUE(predictor.ok());
      int64_t last = 0;
      while (!done.load() || last == 0) {
        ASSERT_TRUE((*predictor)->refresh().ok());
        const int64_t at = (*predictor)->steps();
        EXPECT_GE(at, last);
        last = at;
        ASSERT_EQ(hash_of(predict(**(*predictor)->session(), inputs)), expected[static_cast<size_t>(at)]) << at;
        ++looked;
      }
    };
    std::thread one(look), two(look);
    for (int s = 0; s < steps; ++s) {
      step(*again, s);
      while (looked.load() * 2 < s) std::this_thread::yield();
    }
    done = true;
    one.join();
    two.join();
    EXPECT_GT(looked.load(), steps / 4);
  }
}

TEST(Predictor, ALookIsRefusedWhileTheStateIsOfNoStep) {
  Host host = test_host(1);
  std::atomic<int> ticks{0};
  host.seconds = [&] { return 0.001 * ticks++; };
  const auto session = make_session(mlp_options(1, "1").value(), host);
  auto predictor = Predictor::create(session, nullptr);
  ASSERT_TRUE(predictor.ok());
  session->state().torn();
  EXPECT_FALSE((*predictor)->refresh().ok());
  EXPECT_TRUE((*predictor)->session().ok());  // it has what it had
  session->state().restored();
  EXPECT_TRUE((*predictor)->refresh().ok());
  StopToken token;
  token.cancel();
  EXPECT_EQ((*predictor)->refresh({.stop = Stop::after(host.seconds, 0, &token)}).code(), Code::cancelled);
  // A change that lasts longer than the reader waits.
  const StateGate::Change change(session->state().gate());
  EXPECT_EQ((*predictor)->refresh({.stop = Stop::after(host.seconds, 0.01)}).code(), Code::deadline_exceeded);
}

// Each number of a step belongs to its step, for any thread that looks.
TEST(Progress, IsNeverAMixtureOfTwoSteps) {
  const Host host = test_host(1);
  const auto session = make_session(mlp_options(1, "1").value(), host);
  EXPECT_EQ(session->host_state().progress().steps, 0);
  EXPECT_TRUE(std::isnan(session->host_state().progress().loss));
  std::map<int64_t, Progress::Numbers> seen;
  std::atomic<bool> done{false};
  std::thread looking([&] {
    while (!done.load()) {
      const Progress::Numbers now = session->host_state().progress();
      const auto [at, is_new] = seen.emplace(now.steps, now);
      EXPECT_TRUE(is_new || now.steps == 0 || at->second.loss == now.loss);
      EXPECT_GE(session->memory_bytes_used(), 0);
    }
  });
  std::vector<StepMetrics> made;
  for (int s = 0; s < 300; ++s) {
    StepMetrics& metrics = made.emplace_back();
    ASSERT_TRUE(session->step(mlp_batch(s), metrics).ok());
  }
  done = true;
  looking.join();
  for (const auto& [steps, numbers] : seen) {
    if (steps == 0) continue;
    const StepMetrics& of = made[static_cast<size_t>(steps - 1)];
    EXPECT_EQ(numbers.loss, of.loss) << steps;
    EXPECT_EQ(numbers.gradient_norm, of.gradient_norm) << steps;
    EXPECT_EQ(numbers.learning_rate, of.learning_rate) << steps;
    EXPECT_EQ(numbers.seconds, of.seconds) << steps;
  }
  EXPECT_EQ(session->host_state().progress().steps, 300);
}

}  // namespace
}  // namespace epl::predictor_test
