// What another memory holds comes ahead of the node that takes it, and waits where that does not raise the peak.
#include <gtest/gtest.h>

#include "core/backend/cost_model.h"
#include "core/program/transfer.h"
#include "core/runtime/rehearsal.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/trained.h"

namespace epl::fetches_ahead_test {
namespace {

// A large parameter before many small ones.
std::string uneven_model() {
  std::string text = "graph uneven(x: f32[4,512] batch 0) {\n  large: f32[512,64] = param\n";
  for (int i = 0; i < 32; ++i) text += cat("  w", i, ": f32[64,64] = param\n");
  text += "  last: f32[64,4] = param\n  forward:\n  r0: f32[4,64] = matmul(x, large)\n";
  for (int i = 0; i < 32; ++i) text += cat("  r", i + 1, ": f32[4,64] = linear(r", i, ", w", i, ")\n");
  return text + "  y: f32[4,4] = matmul(r32, last)\n  output y = y\n}\n";
}

// What comes ahead of a node waits where there is room, and not while the largest node has all that it needs.
TEST(FetchesAhead, WaitWhereThereIsRoom) {
  auto options =
      layout_options(GraphModel::parse(uneven_model()), 1, R"({"offload.level": "v0", "offload.values": "states"})");
  ASSERT_TRUE(options.ok());
  add_backend(far_backend_of_two_memories("far_memories_of_fetches", 3));
  options->device = "far_memories_of_fetches";
  const auto plan = layout_plan(options);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  constexpr int64_t large = int64_t{512} * 64 * 4, small = int64_t{64} * 64 * 4, gradients = large + 32 * small;
  EXPECT_LT(PlanMemory(**plan).arena(), gradients + 2 * large + 4 * small);
  // And a second buffer where one is needed all the time.
  EXPECT_GT(PlanMemory(**plan).arena(), gradients + 2 * large);
}

// Layers of which each computes for as long as there are rows.
std::string layered_model(int64_t rows) {
  constexpr int layers = 16;
  std::string text = cat("graph layered(x: f32[8,", rows, ",64] batch 0) {\n  last: f32[64,4] = param\n");
  for (int i = 0; i < layers; ++i) text += cat("  w", i, ": f32[64,64] = param\n");
  text += cat("  forward:\n  r0: f32[8,", rows, ",64] = sigmoid(x)\n");
  for (int i = 0; i < layers; ++i) text += cat("  r", i + 1, ": f32[8,", rows, ",64] = matmul(r", i, ", w", i, ")\n");
  return text + cat("  p: f32[8,64] = sum(r", layers,
                    ") {axes=[1], keep=false}\n  y: f32[8,4] = matmul(p, last)\n  output y = y\n}\n");
}

Result<std::shared_ptr<const CompiledPlan>> layered_plan(const std::string& device, int64_t rows,
                                                         std::string_view strategy) {
  auto options = layout_options(GraphModel::parse(layered_model(rows)), 1, strategy);
  if (options.ok()) options->device = device;
  return layout_plan(options);
}

double step_seconds(const std::shared_ptr<const CompiledPlan>& plan) {
  const auto rehearsal = rehearse(test_host(2), plan);
  EXPECT_TRUE(rehearsal.ok()) << rehearsal.status().to_string();
  return rehearsal.ok() ? rehearsal->trace.end() : 0;
}

// No plan takes less than this for what it writes behind the backward pass.
double seconds_of_evicts(const CompiledPlan& plan) {
  const CostModel cost(plan.device()->machine());
  double seconds = 0;
  for (const Instruction& in : plan.entry(EntryKind::train)->programs[0].instructions) {
    if (in.transfer && in.transfer->evicts)
      seconds += cost.launch() + cost.other(in.outputs[0].memory, static_cast<double>(in.bytes));
  }
  return seconds;
}

// A memory as far away as that of the host is from a GPU: what is read comes while the rest is written, and where the
// model computes long enough a step has 85 % of its speed.
TEST(FetchesAhead, ComeWhileOthersAreWritten) {
  add_backend(far_backend_of_two_memories("far_memories_behind_a_bus", 3, 4, 0.3e9));
  for (const std::string& device : {std::string("far_memories_behind_a_bus"), std::string("cpu")}) {
    for (const int64_t rows : {256, 2048}) {
      const auto kept = layered_plan(device, rows, "{}");
      const auto moved =
          layered_plan(device, rows, R"({"offload.level": "v0", "offload.values": "states", "offload.folder": "."})");
      ASSERT_TRUE(kept.ok() && moved.ok()) << moved.status().to_string();
      const double evicts = seconds_of_evicts(**moved), fast = step_seconds(*kept), slow = step_seconds(*moved);
      ASSERT_GT(evicts, 0);
      EXPECT_GT(slow, fast);
      EXPECT_LT(slow, fast + 1.3 * evicts) << device << ", " << rows << " rows; writing takes " << evicts;
      if (rows == 2048) {
        EXPECT_LT(slow * 0.85, fast) << device;
      }
    }
  }
}

}  // namespace
}  // namespace epl::fetches_ahead_test
