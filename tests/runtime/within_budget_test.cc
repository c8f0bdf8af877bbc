// Plans that keep to a budget by all that changes no number: peaks within budgets, times monotone in them, the bits of
// a plan without a budget, plan files of what was chosen, and an error that says what is missing.
#include "core/runtime/within_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/compile/budget.h"
#include "core/compile/plan_decisions.h"
#include "core/runtime/rehearsal.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"
#include "tests/thirds.h"

namespace epl::within_budget_test {
namespace {

struct Sizes {
  int samples = 0, width = 0;
};
// Weights take about what results take, or much less.
constexpr Sizes balanced = {32, 48}, many_samples = {256, 16};

std::string model_of(const Sizes& sizes) {
  constexpr int layers = 3;
  const std::string results = cat("f32[", sizes.samples, ",", sizes.width, "]");
  const std::string weights = cat("f32[", sizes.width, ",", sizes.width, "]"), bias = cat("f32[", sizes.width, "]");
  std::string text = cat("graph layers(x: ", results, " batch 0) {\n  last: f32[", sizes.width, ",4] = param\n");
  for (int i = 0; i < layers; ++i) text += cat("  w", i, ": ", weights, " = param\n  b", i, ": ", bias, " = param\n");
  text += cat("  forward:\n  r0: ", results, " = relu(x)\n");
  for (int i = 0; i < layers; ++i) {
    text += cat("  h", i, ": ", results, " = linear(r", i, ", w", i, ", b", i, ")\n  a", i, ": ", results, " = gelu(h",
                i, ")\n  r", i + 1, ": ", results, " = add(r", i, ", a", i, ")\n");
  }
  return text + cat("  y: f32[", sizes.samples, ",4] = matmul(r", layers, ", last)\n  output y = y\n}\n");
}

// Values may lie in files.
PlanOptions options_of(int64_t budget, int64_t ranks, const std::string& keys = "", const Sizes& sizes = balanced) {
  static const TemporaryFolder folder;
  const std::string own = budget > 0
                              ? cat("\"memory.budget\": \"", budget, "\", \"offload.folder\": \"", folder.path(), "\"")
                              : std::string();
  const std::string all = own.empty() || keys.empty() ? own + keys : cat(own, ", ", keys);
  auto options = layout_options(GraphModel::parse(model_of(sizes)), ranks, at_level("data", all));
  EXPECT_TRUE(options.ok()) << options.status().to_string();
  return *std::move(options);
}

Result<std::shared_ptr<const CompiledPlan>> plan_of(int64_t budget, int64_t ranks, const std::string& keys = "",
                                                    const Sizes& sizes = balanced) {
  return plan_within_budget(test_host(2), options_of(budget, ranks, keys, sizes));
}

// Of a plan without a budget.
int64_t peak_of(const std::string& keys, const Sizes& sizes) {
  const auto plan = plan_of(0, 1, keys, sizes);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return plan.ok() ? PlanMemory(**plan).peak() : 0;
}

// The row of what was taken.
BudgetTrial taken_of(const CompiledPlan& plan) {
  const std::vector<BudgetTrial>& tried = plan.options().tried;
  const auto taken = std::ranges::find(tried, BudgetTrial::Outcome::taken, &BudgetTrial::outcome);
  EXPECT_NE(taken, tried.end());
  return taken == tried.end() ? BudgetTrial() : *taken;
}

// What plans are chosen by, if nothing stays of what could lie elsewhere.
double seconds_of(const std::shared_ptr<const CompiledPlan>& plan) {
  PlanOptions options = plan->options();
  options.keeps_to_budget = false;
  const auto without = CompiledPlan::create(test_host(2), options);
  EXPECT_TRUE(without.ok()) << without.status().to_string();
  if (!without.ok()) return 0;
  const auto seconds = seconds_of_step(test_host(2), *without);
  EXPECT_TRUE(seconds.ok()) << seconds.status().to_string();
  return seconds.ok() ? *seconds + seconds_again(*plan) : 0;
}

std::vector<Tensor> batch(int step) {
  Tensor x(TensorType{DType::f32, {32, 48}}), target(TensorType{DType::i64, {32}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>((i * 37 + step * 11) % 101) / 50 - 1);
  for (int64_t i = 0; i < target.elements(); ++i) target.set_int(i, (i + step) % 4);
  return {x, target};
}

std::vector<Tensor> few_batch(int step) {
  Tensor x(TensorType{DType::f32, {8, 96}}), target(TensorType{DType::i64, {8}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>((i * 31 + step * 7) % 97) / 50 - 1);
  for (int64_t i = 0; i < target.elements(); ++i) target.set_int(i, (i + step) % 4);
  return {x, target};
}

class WithinBudget : public ::testing::TestWithParam<int64_t> {};

TEST_P(WithinBudget, PeaksKeepToItAndTimesAreMonotone) {
  EPL_ONE_OF_THREE();
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
    EXPECT_GE(taken_of(**plan).seconds, least_seconds) << budget;
    least_peak = peak;
    least_seconds = taken_of(**plan).seconds;
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

// "budget" says that results are computed again for a budget, as they are without it.
TEST(WithinBudgetKeys, GoWithTheTypeBudget) {
  const std::string keys = R"("offload.level": "", "pipeline.num_micro_batch": 1)";
  const int64_t most = peak_of(keys, many_samples);
  const int64_t least = peak_of(cat(keys, R"(, "gradient_checkpoint.type": "auto")"), many_samples);
  for (const int64_t budget : {most, (least + most) / 2}) {
    const auto plain = plan_of(budget, 1, keys, many_samples);
    const auto typed = plan_of(budget, 1, cat(keys, R"(, "gradient_checkpoint.type": "budget")"), many_samples);
    ASSERT_TRUE(plain.ok()) << plain.status().to_string();
    ASSERT_TRUE(typed.ok()) << typed.status().to_string();
    EXPECT_EQ(PlanMemory(**typed).peak(), PlanMemory(**plain).peak()) << budget;
  }
}

// How many independent micro-batches there are is part of the mathematics.
TEST(WithinBudgetKeys, LeaveIndependentMicroBatchesAlone) {
  const std::string keys = R"("gradient_checkpoint.type": "auto", "offload.level": "")";
  const auto global = plan_of(peak_of(keys, many_samples) * 95 / 100, 1, keys, many_samples);
  ASSERT_TRUE(global.ok()) << global.status().to_string();
  EXPECT_GT((*global)->options().strategy.integer("pipeline.num_micro_batch"), 1);
  const std::string independent = cat(keys, R"(, "batch.semantics": "per_micro_batch")");
  const auto refused = plan_of(peak_of(independent, many_samples) * 8 / 10, 1, independent, many_samples);
  EXPECT_EQ(refused.status().code(), Code::unsupported);
  EXPECT_NE(refused.status().message().find("too many"), std::string::npos) << refused.status().to_string();
}

// Results are computed again only where a note says so, and the other way round.
TEST(WithinBudgetKeys, AreInNotesWithWhatIsComputedAgain) {
  const std::string set = R"("offload.level": "")";
  const int64_t most = peak_of(set, many_samples);
  const int64_t least = peak_of(cat(set, R"(, "gradient_checkpoint.type": "auto")"), many_samples);
  for (const int64_t budget : {(least + most) / 2, least * 95 / 100}) {
    const auto plan = plan_of(budget, 1, set, many_samples);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const Plan& train = (*plan)->entry(EntryKind::train)->plan;
    const auto note =
        std::ranges::find_if(train.notes, [](const std::string& one) { return one.find(" time than") != one.npos; });
    ASSERT_NE(note, train.notes.end());
    EXPECT_EQ(note->find("what is computed again") != note->npos, !train.node_recomputed.empty()) << *note;
    EXPECT_EQ(note->find("pipeline.num_micro_batch = ") != note->npos, train.micro_batches() > 1) << *note;
  }
}

// Each choice has a line of its own, and the lines add up to what was taken.
TEST(WithinBudgetKeys, SayWhatEachOfThemCosts) {
  const std::string set = R"("offload.level": "", "pipeline.num_micro_batch": 1)";
  const auto lines_of = [](const CompiledPlan& plan, std::string_view what) {
    std::vector<std::string> found;
    for (const std::string& note : plan.entry(EntryKind::train)->plan.notes) {
      if (note.starts_with(cat("memory.budget: ", what)) && note.find(" of a step and ") != note.npos)
        found.push_back(note);
    }
    return found;
  };
  const int64_t most = peak_of(set, many_samples);
  const int64_t least = peak_of(cat(set, R"(, "gradient_checkpoint.type": "auto")"), many_samples);
  const auto again = plan_of((least + most) / 2, 1, set, many_samples);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  const std::vector<std::string> of_again = lines_of(**again, "computing again takes ");
  ASSERT_EQ(of_again.size(), 1u);
  const std::string spared = cat("spares ", grouped(most - PlanMemory(**again).peak()), " bytes on a rank");
  EXPECT_NE(of_again.front().find(spared), std::string::npos) << of_again.front();
  // Nothing but values in files can be chosen here.
  const std::string kept = R"("gradient_checkpoint.type": "collection", "pipeline.num_micro_batch": 1)";
  constexpr Sizes few_samples = {8, 96};
  const auto moved = plan_of(peak_of(kept, few_samples) * 65 / 100, 1, kept, few_samples);
  ASSERT_TRUE(moved.ok()) << moved.status().to_string();
  EXPECT_EQ(lines_of(**moved, "offload.level = v0, offload.values = ").size(), 1u) << (*moved)->explain();
  EXPECT_EQ(lines_of(**moved, "computing again").size(), 0u);
  // Without need nothing is chosen.
  const auto roomy = plan_of(most * 2, 1, set, many_samples);
  ASSERT_TRUE(roomy.ok()) << roomy.status().to_string();
  EXPECT_EQ(lines_of(**roomy, "").size(), 0u);
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
  const BudgetTrial taken = taken_of(**plan);
  EXPECT_EQ(taken.peak, PlanMemory(**plan).peak());
  ASSERT_EQ(taken.stays, 0);
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

// Between all states here and all states elsewhere there are shares of them.
TEST(WithinBudgetKeys, MoveAShareOfTheStates) {
  const std::string keys = R"("gradient_checkpoint.type": "collection", "pipeline.num_micro_batch": 1)";
  constexpr Sizes few_samples = {8, 96};
  const int64_t most = peak_of(keys, few_samples);
  double before = 0;
  std::set<int> shares;
  for (const int percent : {95, 85, 75, 65, 60}) {
    const auto plan = plan_of(most * percent / 100, 1, keys, few_samples);
    ASSERT_TRUE(plan.ok()) << percent << ": " << plan.status().to_string();
    const BudgetTrial taken = taken_of(**plan);
    EXPECT_EQ(taken.peak, PlanMemory(**plan).peak());
    EXPECT_LE(taken.peak, most * percent / 100);
    EXPECT_GE(taken.seconds, before);
    before = taken.seconds;
    shares.insert(taken.stays);
    if (taken.stays == 0) continue;
    int64_t there = 0;
    for (const StateSlot& slot : (*plan)->state_of(0).slots())
      there += slot.kind == ValueKind::state && slot.memory == MemoryKind::device ? slot.local.bytes() : 0;
    EXPECT_GT(there, 0);
    EXPECT_NE((*plan)->explain().find(cat("of which ", taken.stays, " % stay")), std::string::npos);
    expect_same(train(plan, keys, 2, few_batch), train(plan_of(0, 1, keys, few_samples), keys, 2, few_batch), keys);
  }
  EXPECT_GE(shares.size(), 3u);
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

// A first step with nothing computed again has no room, which more bytes of the others do not say.
TEST(WithinBudgetErrors, SayThatGradientsCannotBeCompared) {
  const std::string keys = R"("offload.level": "", "pipeline.num_micro_batch": 1)";
  const int64_t most = peak_of(keys, many_samples);
  const int64_t least = peak_of(cat(keys, R"(, "gradient_checkpoint.type": "auto")"), many_samples);
  ASSERT_LT(least, most);
  const int64_t budget = (least + most) / 2;
  EXPECT_TRUE(plan_of(budget, 1, keys, many_samples).ok());
  const std::string compared = cat(keys, R"(, "gradient_checkpoint.check_gradients": true)");
  const auto refused = plan_of(budget, 1, compared, many_samples);
  EXPECT_EQ(refused.status().code(), Code::unsupported);
  EXPECT_TRUE(refused.status().message().starts_with("gradient_checkpoint.check_gradients computes"))
      << refused.status().to_string();
  EXPECT_TRUE(plan_of(most, 1, compared, many_samples).ok());
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
