// What another memory holds comes ahead of the node that takes it, and waits where that does not raise the peak.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace epl::fetches_ahead_test
