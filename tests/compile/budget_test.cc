// Plans within a budget of memory (`memory.budget`): every peak within its budget, time and memory monotone in the
// budget, the bits of a plan without one, and an error that says how many bytes are missing.
#include "core/compile/budget.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/compile/plan_memory.h"
#include "tests/runtime/trained.h"
#include "tests/thirds.h"

namespace epl::budget_test {
namespace {

// Layers whose results take far more than their weights.
std::string deep(int layers) {
  std::string text = "graph deep(x: f32[64,32,8] batch 0) {\n  last: f32[8,4] = param\n";
  for (int i = 0; i < layers; ++i) text += cat("  w", i, ": f32[8,8] = param\n  b", i, ": f32[8] = param\n");
  text += "  forward:\n  r0: f32[64,32,8] = relu(x)\n";
  for (int i = 0; i < layers; ++i) {
    text += cat("  h", i, ": f32[64,32,8] = linear(r", i, ", w", i, ", b", i, ")\n  a", i, ": f32[64,32,8] = gelu(h", i,
                ")\n  d", i, ": f32[64,32,8], m", i, ": bool[64,32,8] = dropout(a", i, ") {ratio=0.2}\n  r", i + 1,
                ": f32[64,32,8] = add(r", i, ", d", i, ")\n");
  }
  return text + cat("  y: f32[64,32,4] = matmul(r", layers, ", last)\n  output y = y\n}\n");
}

Result<std::shared_ptr<const CompiledPlan>> plan_of(int64_t budget, int64_t ranks = 1, const std::string& keys = "") {
  const std::string own = budget > 0 ? cat("\"memory.budget\": \"", budget, "\"") : std::string();
  const std::string all = own.empty() || keys.empty() ? own + keys : cat(own, ", ", keys);
  return layout_plan(layout_options(GraphModel::parse(deep(6)), ranks, at_level("data", all)));
}

std::vector<Tensor> batch(int step) {
  Tensor x(TensorType{DType::f32, {64, 32, 8}}), target(TensorType{DType::i64, {64, 32}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>((i * 37 + step * 11) % 101) / 50 - 1);
  for (int64_t i = 0; i < target.elements(); ++i) target.set_int(i, (i + step) % 4);
  return {x, target};
}

// Budgets are tried from what the plan takes without one down to `least` hundredths of it, `apart` from each other. A
// pipeline's plan takes a second, and one that is refused 17.
struct Layout {
  int64_t ranks = 1;
  std::string keys;
  int apart = 10, least = 20;
};
class Budget : public ::testing::TestWithParam<Layout> {};

TEST_P(Budget, IsKeptAndMoreNeverTakesLonger) {
  EPL_ONE_OF_THREE();
  const auto& [ranks, keys, apart, lowest] = GetParam();
  const auto without = plan_of(0, ranks, keys);
  ASSERT_TRUE(without.ok()) << without.status().to_string();
  const int64_t most = PlanMemory(**without).peak();
  double least_seconds = 0;
  int64_t least_peak = most;
  int fitting = 0;
  for (int percent = 100; percent > lowest; percent -= apart) {
    const int64_t budget = most * percent / 100;
    const auto plan = plan_of(budget, ranks, keys);
    if (!plan.ok()) {
      EXPECT_NE(plan.status().message().find("too many"), std::string::npos) << plan.status().to_string();
      break;
    }
    ++fitting;
    const int64_t peak = PlanMemory(**plan).peak();
    EXPECT_LE(peak, budget);
    EXPECT_LE(peak, least_peak) << budget;
    EXPECT_GE(seconds_again(**plan), least_seconds) << budget;
    least_peak = peak;
    least_seconds = seconds_again(**plan);
  }
  EXPECT_GE(fitting, apart > 10 ? 2 : 3);
  EXPECT_LT(least_peak, most * (apart > 10 ? 8 : 7) / 10);
  // What is planned is what is used (train looks), and it has the same bits.
  expect_same(train(plan_of(least_peak, ranks, keys), keys, 3, batch), train(without, keys, 3, batch), keys);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Budget,
                         ::testing::Values(Layout{1, ""}, Layout{2, R"("pipeline.num_micro_batch": 2)"},
                                           Layout{2, R"("pipeline.num_stages": 2, "pipeline.num_micro_batch": 4)", 25,
                                                  60}),
                         [](const auto& info) { return cat("layout", info.index); });

TEST(BudgetErrors, SayHowManyBytesAreMissing) {
  const auto plan = plan_of(20000);
  ASSERT_FALSE(plan.ok());
  const std::string& why = plan.status().message();
  EXPECT_NE(why.find("memory.budget allows 20,000 bytes, and a rank has "), std::string::npos) << why;
  // The least that it names is enough.
  const size_t at = why.find("a rank has ") + 11;
  std::string least = why.substr(at, why.find(' ', at) - at);
  std::erase(least, ',');
  EXPECT_TRUE(plan_of(std::stoll(least)).ok());
  EXPECT_FALSE(plan_of(std::stoll(least) - 1).ok());
}

TEST(BudgetErrors, NameTheKey) {
  for (const char* text : {"lots", "-1", "0", "1.5 parsecs", "1e30", "nan", ""}) {
    const auto read = parse_bytes(text, "memory.budget");
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_NE(read.status().message().find("memory.budget"), std::string::npos);
  }
  EXPECT_EQ(*parse_bytes("1.6GB", ""), 1600000000);
  EXPECT_EQ(*parse_bytes("2 GiB", ""), int64_t{2} << 30);
  EXPECT_EQ(*parse_bytes("4096", ""), 4096);
  const auto nothing = plan_of(0, 1, R"("gradient_checkpoint.type": "budget")");
  ASSERT_FALSE(nothing.ok());
  EXPECT_NE(nothing.status().message().find("memory.budget"), std::string::npos);
}

}  // namespace
}  // namespace epl::budget_test
