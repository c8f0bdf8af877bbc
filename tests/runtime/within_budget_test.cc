// Plans that keep to a budget by all that changes no number: peaks within budgets, times monotone in them, the bits of
// a plan without a budget, plan files of what was chosen, and an error that says what is missing.
#include "core/runtime/within_budget.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/compile/budget.h"
#include "core/compile/plan_decisions.h"
#include "core/runtime/rehearsal.h"
#include "tests/runtime/trained.h"

namespace epl::within_budget_test {
namespace {

// Layers whose weights take about what their results take.
std::string balanced(int layers) {
  std::string text = "graph balanced(x: f32[32,48] batch 0) {\n  last: f32[48,4] = param\n";
  for (int i = 0; i < layers; ++i) text += cat("  w", i, ": f32[48,48] = param\n  b", i, ": f32[48] = param\n");
  text += "  forward:\n  r0: f32[32,48] = relu(x)\n";
  for (int i = 0; i < layers; ++i) {
    text += cat("  h", i, ": f32[32,48] = linear(r", i, ", w", i, ", b", i, ")\n  a", i, ": f32[32,48] = gelu(h", i,
                ")\n  r", i + 1, ": f32[32,48] = add(r", i, ", a", i, ")\n");
  }
  return text + cat("  y: f32[32,4] = matmul(r", layers, ", last)\n  output y = y\n}\n");
}

PlanOptions options_of(int64_t budget, int64_t ranks, const std::string& keys = "") {
  const std::string own = budget > 0 ? cat("\"memory.budget\": \"", budget, "\"") : std::string();
  const std::string all = own.empty() || keys.empty() ? own + keys : cat(own, ", ", keys);
  auto options = layout_options(GraphModel::parse(balanced(3)), ranks, at_level("data", all));
  EXPECT_TRUE(options.ok()) << options.status().to_string();
  return *std::move(options);
}

Result<std::shared_ptr<const CompiledPlan>> plan_of(int64_t budget, int64_t ranks, const std::string& keys = "") {
  return plan_within_budget(test_host(2), options_of(budget, ranks, keys));
}

// What plans are chosen by.
double seconds_of(const std::shared_ptr<const CompiledPlan>& plan) {
  PlanOptions options = plan->options();
  options.strategy.config.erase("memory.budget");
  const auto without = CompiledPlan::create(test_host(2), options);
  EXPECT_TRUE(without.ok()) << without.status().to_string();
  if (!without.ok()) return 0;
  const auto rehearsal = rehearse(test_host(2), *without);
  EXPECT_TRUE(rehearsal.ok()) << rehearsal.status().to_string();
  return rehearsal.ok() ? rehearsal->trace.end() - rehearsal->trace.begin() + seconds_again(*plan) : 0;
}

std::vector<Tensor> batch(int step) {
  Tensor x(TensorType{DType::f32, {32, 48}}), target(TensorType{DType::i64, {32}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>((i * 37 + step * 11) % 101) / 50 - 1);
  for (int64_t i = 0; i < target.elements(); ++i) target.set_int(i, (i + step) % 4);
  return {x, target};
}

class WithinBudget : public ::testing::TestWithParam<int64_t> {};

TEST_P(WithinBudget, PeaksKeepToItAndTimesAreMonotone) {
  const int64_t ranks = GetParam();
  const auto without = plan_of(0, ranks);
  ASSERT_TRUE(without.ok()) << without.status().to_string();
  const int64_t most = PlanMemory(**without).peak();
  double least_seconds = 0;
  int64_t least_peak = most + 1;
  for (int percent = 100; percent > 0; percent -= 15) {
    const int64_t budget = most * percent / 100;
    const auto plan = plan_of(budget, ranks);
    if (!plan.ok()) {
      EXPECT_NE(plan.status().message().find("too many"), std::string::npos) << plan.status().to_string();
      break;
    }
    const int64_t peak = PlanMemory(**plan).peak();
    EXPECT_LE(peak, budget);
    EXPECT_LE(peak, least_peak);
    EXPECT_GE(seconds_of(*plan), least_seconds) << budget;
    least_peak = peak;
    least_seconds = seconds_of(*plan);
  }
  // Weights, gradients and states are more than half: nothing but another memory, or shards, brings a plan below that.
  EXPECT_LT(least_peak, most * 6 / 10);
  expect_same(train(plan_of(least_peak, ranks), "budget", 3, batch), train(without, "budget", 3, batch), "budget");
}

INSTANTIATE_TEST_SUITE_P(Ranks, WithinBudget, ::testing::Values(1, 2));

TEST(WithinBudgetKeys, ThatAStrategySetsStayAsTheyAre) {
  const std::string set = R"("offload.level": "", "pipeline.num_micro_batch": 1)";
  const auto without = plan_of(0, 1, set);
  ASSERT_TRUE(without.ok()) << without.status().to_string();
  const int64_t budget = PlanMemory(**without).peak() * 6 / 10;
  const auto plan = plan_of(budget, 1, set);
  EXPECT_EQ(plan.status().code(), Code::unsupported);
  const auto open = plan_of(budget, 1);
  ASSERT_TRUE(open.ok()) << open.status().to_string();
  EXPECT_EQ((*open)->options().strategy.text("offload.level"), "v0");
  const std::vector<std::string>& notes = (*open)->entry(EntryKind::train)->plan.notes;
  EXPECT_TRUE(std::ranges::any_of(notes, [](const std::string& note) {
    return note.starts_with("memory.budget: ") && note.find("offload.level = v0") != std::string::npos;
  }));
}

// What was tried is told with peak and time, and it is what the choice follows from.
TEST(WithinBudgetTrials, SayWhatWasChosenFrom) {
  using Outcome = BudgetTrial::Outcome;
  const auto without = plan_of(0, 2);
  ASSERT_TRUE(without.ok()) << without.status().to_string();
  EXPECT_TRUE((*without)->options().tried.empty());
  const int64_t budget = PlanMemory(**without).peak() * 7 / 10;
  const auto plan = plan_of(budget, 2);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const std::vector<BudgetTrial>& tried = (*plan)->options().tried;
  ASSERT_EQ(std::ranges::count(tried, Outcome::taken, &BudgetTrial::outcome), 1);
  const BudgetTrial& taken = *std::ranges::find(tried, Outcome::taken, &BudgetTrial::outcome);
  EXPECT_EQ(taken.peak, PlanMemory(**plan).peak());
  EXPECT_NEAR(taken.seconds, seconds_of(*plan), 1e-12);
  EXPECT_EQ(std::ranges::count(tried, std::string(), &BudgetTrial::keys), 1);
  for (const BudgetTrial& trial : tried) {
    EXPECT_GT(trial.seconds, 0) << trial.keys;
    if (trial.outcome == Outcome::too_large) {
      EXPECT_GT(trial.peak, budget) << trial.keys;
    } else {
      EXPECT_GE(trial.seconds, taken.seconds) << trial.keys;
    }
    if (trial.outcome == Outcome::fits) {
      EXPECT_LE(trial.peak, budget) << trial.keys;
    }
  }
  const std::string text = (*plan)->explain();
  EXPECT_NE(text.find("planned for memory.budget:\n"), std::string::npos) << text;
  EXPECT_NE(text.find(", taken\n"), std::string::npos) << text;
  EXPECT_EQ((*without)->explain().find("planned for memory.budget"), std::string::npos);
}

// A plan file has what was chosen, so the strategy that it was made for reads it.
TEST(WithinBudgetKeys, AreTakenFromAPlanFile) {
  const auto without = plan_of(0, 1);
  ASSERT_TRUE(without.ok()) << without.status().to_string();
  PlanOptions options = options_of(PlanMemory(**without).peak() * 6 / 10, 1);
  const auto plan = plan_within_budget(test_host(2), options);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const auto file = std::make_shared<const PlanFile>(decisions_of(**plan, "test"));
  ASSERT_TRUE(take_decisions(*file, "test", true, options).ok());
  options.decisions = file;
  const auto again = plan_within_budget(test_host(2), options);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(PlanMemory(**again).peak(), PlanMemory(**plan).peak());
}

TEST(WithinBudgetErrors, SayHowManyBytesAreMissingAndWhatIsNearest) {
  const auto plan = plan_of(2000, 1);
  ASSERT_FALSE(plan.ok());
  const std::string& why = plan.status().message();
  EXPECT_NE(why.find("memory.budget allows 2,000 bytes, and a rank has "), std::string::npos) << why;
  EXPECT_NE(why.find("with offload.level = v0"), std::string::npos) << why;
  // The least that it names is enough.
  const size_t at = why.find("a rank has ") + 11;
  std::string least = why.substr(at, why.find(' ', at) - at);
  std::erase(least, ',');
  EXPECT_TRUE(plan_of(std::stoll(least), 1).ok());
  EXPECT_FALSE(plan_of(std::stoll(least) - 1, 1).ok());
}

}  // namespace
}  // namespace epl::within_budget_test
