// Budgets from all that a plan takes down to hardly anything, on five models: each peak is within its budget, less
// never has a higher peak, more never takes longer, and a session has what was planned to the byte. Where nothing fits
// the error says how many bytes are missing. The number of budgets is few, or that of EPL_BUDGETS.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "core/compile/plan_memory.h"
#include "core/runtime/within_budget.h"
#include "tests/runtime/block_models.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"
#include "tests/thirds.h"

namespace epl::budget_sweep_test {
namespace {

struct Swept {
  const char* name;
  std::string text;
  int64_t ranks = 1;
};

// Weights take nearly all.
std::string wide_layers() {
  std::string text = "graph wide(x: f32[4,64] batch 0) {\n  last: f32[64,4] = param\n";
  for (int i = 0; i < 4; ++i) text += cat("  w", i, ": f32[64,64] = param\n");
  text += "  forward:\n  r0: f32[4,64] = relu(x)\n";
  for (int i = 0; i < 4; ++i) text += cat("  r", i + 1, ": f32[4,64] = gelu(h", i, ")\n");
  for (int i = 0; i < 4; ++i)
    text.insert(text.find(cat("  r", i + 1, ":")), cat("  h", i, ": f32[4,64] = linear(r", i, ", w", i, ")\n"));
  return text + "  y: f32[4,4] = matmul(r4, last)\n  output y = y\n}\n";
}

const std::vector<Swept>& swept() {
  static const std::vector<Swept> all = {{"deep", deep_model(3)},
                                         {"wide", wide_layers()},
                                         {"gpt", block_model(BlockModel::gpt)},
                                         {"deep_on_two_ranks", deep_model(2), 2},
                                         {"experts", std::string(four_experts)}};
  return all;
}

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Swept& model, int64_t budget) {
  static const TemporaryFolder folder;
  const std::string keys =
      budget > 0 ? cat("\"memory.budget\": \"", budget, "\", \"offload.folder\": \"", folder.path(), "\"") : "";
  auto options = layout_options(GraphModel::parse(model.text), model.ranks, at_level("data", keys));
  EPL_TRY(options.status());
  options->evaluate = false;
  return plan_within_budget(test_host(2), *options);
}

// By which it was chosen.
double seconds_of(const CompiledPlan& plan) {
  const std::vector<BudgetTrial>& tried = plan.options().tried;
  const auto taken = std::ranges::find(tried, BudgetTrial::Outcome::taken, &BudgetTrial::outcome);
  EXPECT_NE(taken, tried.end());
  return taken == tried.end() ? 0 : taken->seconds;
}

// A step, with exact bytes in all memories.
void expect_exact(const std::shared_ptr<const CompiledPlan>& plan) {
  auto session = Session::create(test_host(2), plan, {.seed = 7});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  std::vector<Tensor> inputs;
  for (const Port& port : plan->entry(EntryKind::train)->inputs) inputs.emplace_back(port.global_type);
  StepMetrics metrics;
  const Status status = (*session)->step(inputs, metrics);
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (const MemoryKind memory : memory_kinds) {
    int64_t most = 0;
    for (int c = 0; c < plan->virtual_devices(); ++c) most = std::max(most, PlanMemory(*plan).peak(c, memory));
    EXPECT_EQ((*session)->memory_bytes_used(memory), most) << memory_kind_name(memory);
  }
}

int64_t least_of(const std::string& why) {
  const size_t at = why.find("a rank has ") + 11;
  std::string least = why.substr(at, why.find(' ', at) - at);
  std::erase(least, ',');
  return std::atoll(least.c_str());
}

class BudgetSweep : public ::testing::TestWithParam<size_t> {};

TEST_P(BudgetSweep, KeepsPeaksAndOrder) {
  EPL_ONE_OF_THREE();
  const Swept& model = swept()[GetParam()];
  const char* asked = std::getenv("EPL_BUDGETS");
  const int64_t budgets = asked ? std::max(2, std::atoi(asked)) : 3;
  const auto without = plan_of(model, 0);
  ASSERT_TRUE(without.ok()) << without.status().to_string();
  const int64_t most = PlanMemory(**without).peak();
  const int64_t least = least_of(plan_of(model, 1).status().message());
  ASSERT_LT(least, most);
  int64_t least_peak = most;
  double least_seconds = 0;
  for (int64_t i = 0; i < budgets; ++i) {
    const int64_t budget = most - (most - least + 1) * i / (budgets - 1);
    SCOPED_TRACE(cat(model.name, ", ", budget, " bytes of ", most));
    const auto plan = plan_of(model, budget);
    if (!plan.ok()) {
      ASSERT_EQ(plan.status().code(), Code::unsupported) << plan.status().to_string();
      EXPECT_NE(plan.status().message().find("too many"), std::string::npos) << plan.status().to_string();
      // What is missing does not depend on the budget.
      EXPECT_LT(budget, least);
      EXPECT_EQ(least_of(plan.status().message()), least);
      continue;
    }
    EXPECT_GE(budget, least);
    const int64_t peak = PlanMemory(**plan).peak();
    EXPECT_LE(peak, budget);
    EXPECT_LE(peak, least_peak);
    EXPECT_GE(seconds_of(**plan), least_seconds);
    least_peak = peak;
    least_seconds = seconds_of(**plan);
    expect_exact(*plan);
  }
  const auto tight = plan_of(model, least);
  ASSERT_TRUE(tight.ok()) << tight.status().to_string();
  EXPECT_LE(PlanMemory(**tight).peak(), least);
}

INSTANTIATE_TEST_SUITE_P(Models, BudgetSweep, ::testing::Range<size_t>(0, 5),
                         [](const auto& info) { return swept()[info.param].name; });

}  // namespace
}  // namespace epl::budget_sweep_test
