// The numbers of a session that live between steps, without a session.
#include "core/runtime/host_state.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/runtime/mlp.h"

namespace epl::host_state_test {
namespace {

class Numbers : public ::testing::Test {
 protected:
  std::shared_ptr<const CompiledPlan> make_plan(bool freezable) {
    PlanOptions options = mlp_options(1, "1").value();
    options.train.freezable = freezable;
    return CompiledPlan::create(test_host(1), options).value();
  }
  void change(HostState& numbers) {
    EXPECT_TRUE(numbers.set_number("learning_rate_scale", 0.5).ok());
    EXPECT_TRUE(numbers.set_number("learning_rate", 0.003).ok());
    EXPECT_TRUE(numbers.set_number("frozen:w*", 1).ok());
    numbers.set_steps_done(4);
    numbers.set_seed(9);
  }
  std::shared_ptr<const CompiledPlan> plan = make_plan(true);
};

TEST_F(Numbers, AreNotInACheckpointWhereTheyStandAsTheyBegan) {
  Checkpoint saved;
  HostState(plan, 7).save(saved);
  EXPECT_EQ(saved.seed, 7u);
  EXPECT_EQ(saved.step, 0);
  EXPECT_TRUE(saved.facts.empty());
}

TEST_F(Numbers, ComeBackFromACheckpoint) {
  HostState before(plan, 7), after(plan, 1);
  change(before);
  Checkpoint saved, again;
  before.save(saved);
  EXPECT_EQ(saved.facts, (Facts{{"frozen", "w1\nw2"},
                                {"rate.bad", "0"},
                                {"rate.best", "0.0"},
                                {"rate.cooldown", "0"},
                                {"rate.groups", "0.003"},
                                {"rate.measured", "false"},
                                {"rate.scale", "0.5"}}));
  ASSERT_TRUE(after.set_number("frozen:b1", 1).ok());  // what a checkpoint does not say goes
  ASSERT_TRUE(HostState::check(saved).ok());
  after.load(saved);
  after.save(again);
  EXPECT_EQ(again.facts, saved.facts);
  EXPECT_EQ(again.step, 4);
  EXPECT_EQ(again.seed, 9u);
  EXPECT_EQ(after.progress().steps, 4);
  EXPECT_EQ(after.number("frozen:b1").value(), 0);
  EXPECT_EQ(after.number("frozen:w2").value(), 1);
  EXPECT_EQ(after.number("learning_rate").value(), 0.003);
  EXPECT_EQ(after.lines(), before.lines());
}

TEST_F(Numbers, ThatDoNotFitThePlanAreLeftOut) {
  HostState before(plan, 7), after(make_plan(false), 7);
  change(before);
  Checkpoint saved;
  before.save(saved);
  saved.facts["rate.groups"] = "0.003 0.004";
  after.load(saved);
  EXPECT_EQ(after.number("frozen:w1").value(), 0);
  EXPECT_EQ(after.number("learning_rate").value(), 0.01);
  saved.facts["rate.scale"] = "-1";
  EXPECT_EQ(HostState::check(saved).message(), "the scale of the learning rate is -1.0; it is a number from 0 on");
}

TEST_F(Numbers, CountTheStepsThatWereDone) {
  HostState numbers(plan, 7);
  StepMetrics done{.loss = 3, .gradient_norm = 2, .learning_rate = 0.1, .seconds = 1};
  numbers.after(done, StepPhase::all);
  EXPECT_EQ(numbers.steps_done(), 1);
  EXPECT_EQ(numbers.progress().loss, 3);
  EXPECT_TRUE(numbers.facts(StepPhase::all).last_applied);
  StepMetrics skipped = done;
  skipped.loss = NAN;
  skipped.skipped = Status(Code::not_finite, "loss is nan");
  numbers.after(skipped, StepPhase::all);
  EXPECT_EQ(numbers.steps_done(), 1);
  EXPECT_EQ(numbers.progress().loss, 3);
  EXPECT_FALSE(numbers.facts(StepPhase::all).last_applied);
  numbers.after(done, StepPhase::gradients);  // the first half of a step
  EXPECT_EQ(numbers.steps_done(), 1);
  EXPECT_TRUE(numbers.facts(StepPhase::all).last_applied);
  StepMetrics empty = done;
  empty.counts_nothing = true;
  numbers.after(empty, StepPhase::update);
  EXPECT_EQ(numbers.steps_done(), 2);
  EXPECT_FALSE(numbers.facts(StepPhase::all).last_applied);
}

std::shared_ptr<const CompiledPlan> float16_plan() {
  PlanOptions options = mlp_options(1, "1").value();
  EXPECT_TRUE(set_config(options.strategy, "amp.level", "O1").ok());
  EXPECT_TRUE(set_config(options.strategy, "amp.type", "f16").ok());
  return CompiledPlan::create(test_host(1), options).value();
}

// As PyTorch's GradScaler: halved by an overflow, doubled after 2,000 steps without one.
TEST_F(Numbers, FollowWhatStepsSayOfTheLossScale) {
  HostState numbers(float16_plan(), 7);
  const StepMetrics done{.loss = 3}, overflowed{.loss = 3, .overflowed = true};
  const auto scale = [&] { return numbers.facts(StepPhase::all).loss_scale; };
  EXPECT_EQ(scale(), 65536);
  for (int i = 0; i < 1999; ++i) numbers.after(done, StepPhase::all);
  numbers.after(done, StepPhase::gradients);  // the first half of a step
  StepMetrics empty = done;
  empty.counts_nothing = true;
  numbers.after(empty, StepPhase::all);
  EXPECT_EQ(scale(), 65536);
  const int64_t steps = numbers.steps_done();
  numbers.after(overflowed, StepPhase::all);
  EXPECT_EQ(scale(), 32768);
  EXPECT_EQ(numbers.steps_done(), steps);
  EXPECT_EQ(numbers.number("skipped_steps").value(), 1);
  for (int i = 0; i < 1999; ++i) numbers.after(done, StepPhase::all);
  EXPECT_EQ(scale(), 32768) << "counted from the overflow on";
  numbers.after(done, StepPhase::update);
  EXPECT_EQ(scale(), 65536);
  for (int i = 0; i < 20; ++i) numbers.after(overflowed, StepPhase::all);
  EXPECT_EQ(scale(), 1) << "nothing below it helps";
  for (int i = 0; i < 40 * 2000; ++i) numbers.after(done, StepPhase::all);
  EXPECT_EQ(scale(), 0x1p24);
  EXPECT_EQ(numbers.set_number("loss_scale", 2).message(), "loss_scale follows from the steps and is not set");
}

TEST_F(Numbers, OfTheLossScaleComeBackFromACheckpoint) {
  const auto narrow = float16_plan();
  HostState before(narrow, 7), after(narrow, 1), wide(plan, 1);
  const StepMetrics done{.loss = 3}, overflowed{.loss = 3, .overflowed = true};
  before.after(overflowed, StepPhase::all);
  for (int i = 0; i < 1999; ++i) before.after(done, StepPhase::all);
  Checkpoint saved, again;
  before.save(saved);
  ASSERT_TRUE(HostState::check(saved).ok());
  after.load(saved);
  after.save(again);
  EXPECT_EQ(again.facts, saved.facts);
  EXPECT_EQ(after.number("loss_scale").value(), 32768);
  EXPECT_EQ(after.number("skipped_steps").value(), 1);
  after.after(done, StepPhase::all);
  EXPECT_EQ(after.number("loss_scale").value(), 65536) << "good steps are counted on";
  wide.load(saved);
  EXPECT_EQ(wide.number("loss_scale").value(), 1) << "a plan without one";
  saved.facts["loss_scale"] = "0";
  EXPECT_FALSE(HostState::check(saved).ok());
  saved.facts["loss_scale"] = "many";
  EXPECT_FALSE(HostState::check(saved).ok());
}

TEST_F(Numbers, AreToldToTheOthersWhenTheHostSetsThem) {
  HostState numbers(plan, 7);
  EXPECT_EQ(numbers.lines(), "learning_rate_scale: 1.0\n");
  for (const char* name : {"learning_rate_scale", "learning_rate", "frozen:b1"}) {
    const uint64_t version = numbers.version();
    const std::string lines = numbers.lines();
    ASSERT_TRUE(numbers.set_number(name, 0).ok() && numbers.set_number(name, 1).ok());
    EXPECT_NE(numbers.version(), version) << name;
    const bool back = std::string_view(name) == "learning_rate_scale";  // 1 is where it began
    EXPECT_EQ(numbers.lines() == lines, back) << name;
  }
  EXPECT_EQ(numbers.lines(), "learning_rate_scale: 1.0\nfrozen: \"b1\"\nrate.groups: \"1.0\"\n");
}

}  // namespace
}  // namespace epl::host_state_test
