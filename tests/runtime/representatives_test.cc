// Ranks that represent all: a step of theirs takes as long as one that all ranks are gone through for.
#include <gtest/gtest.h>

#include <fstream>

#include "core/runtime/rehearsal.h"
#include "core/runtime/session.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"

namespace epl::representatives_test {
namespace {

// Two layers for so many samples.
std::string model(int64_t batch) {
  const std::string wide = cat("f32[", batch, ",16]");
  return cat("graph layers(x: ", wide, R"( batch 0) {
  h.0.w: f32[16,16] = param
  h.1.w: f32[16,16] = param
  forward:
  h.0.fc: )",
             wide, " = matmul(x, h.0.w)\n  h.0.act: ", wide, " = gelu(h.0.fc)\n  h.1.fc: ", wide,
             " = matmul(h.0.act, h.1.w)\n  output y = h.1.fc\n}\n");
}

double seconds(const std::shared_ptr<const CompiledPlan>& plan, const std::vector<int>& represented) {
  const auto device = open_device("sim", test_host(2), {.stands_for = plan->device(), .represented = represented});
  const auto session = Session::create(test_host(2), plan, {.device = *device, .represented = represented});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  std::vector<Tensor> inputs;
  for (const Port& port : plan->entries().front().inputs) inputs.emplace_back(port.global_type);
  StepMetrics metrics;
  (*session)->record(1, 0);
  EXPECT_TRUE((*session)->step(inputs, metrics).ok());
  const StepTrace trace = (*session)->trace();
  EXPECT_EQ(trace.ranks.size(), represented.empty() ? static_cast<size_t>(plan->options().ranks) : represented.size());
  return trace.end() - trace.begin();
}

TEST(Representatives, TakeAsLongAsAllRanks) {
  for (const char* keys : {"", R"("zero.level": "v1")", R"("pipeline.num_stages": 2, "pipeline.num_micro_batch": 4)",
                           R"("default": {"split": 2})"}) {
    const auto plan = layout_plan(layout_options(GraphModel::parse(model(32)), 8, at_level("run", keys)));
    ASSERT_TRUE(plan.ok()) << keys << ": " << plan.status().to_string();
    const std::vector<int> represented = representatives_of(**plan);
    ASSERT_EQ(represented.size(), static_cast<size_t>((*plan)->virtual_devices())) << keys;
    EXPECT_EQ(represented.front(), 0) << keys;
    const double all = seconds(*plan, {});
    EXPECT_GT(all, 0) << keys;
    EXPECT_NEAR(seconds(*plan, represented), all, 1e-9 * all) << keys;
  }
}

TEST(Representatives, AreInARehearsalOfVeryManyRanks) {
  const auto plan = layout_plan(layout_options(GraphModel::parse(model(1024)), 1024, at_level("run", "")));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const auto rehearsal = rehearse(test_host(2), *plan);
  ASSERT_TRUE(rehearsal.ok()) << rehearsal.status().to_string();
  ASSERT_EQ(rehearsal->trace.ranks.size(), 1u);
  EXPECT_GT(rehearsal->trace.end(), rehearsal->trace.begin());
  const Overview overview = make_overview(**plan, *rehearsal);
  ASSERT_EQ(overview.rows.size(), 1u);
  EXPECT_EQ(overview.rows.front().ranks.size(), 1024u) << "the row is of all of them";
  const auto few =
      rehearse(test_host(2), *layout_plan(layout_options(GraphModel::parse(model(32)), 8, at_level("run", ""))));
  ASSERT_TRUE(few.ok()) << few.status().to_string();
  EXPECT_EQ(few->trace.ranks.size(), 8u);
  const auto one =
      rehearse(test_host(2), *layout_plan(layout_options(GraphModel::parse(model(32)), 8, at_level("run", ""))), 8);
  ASSERT_TRUE(one.ok()) << one.status().to_string();
  EXPECT_EQ(one->trace.ranks.size(), 1u);
}

// As many ranks as can be asked for.
TEST(Representatives, Are16384RanksAtMost) {
  const auto plan = layout_plan(layout_options(GraphModel::parse(model(most_ranks)), most_ranks, at_level("run", "")));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const auto seconds = seconds_of_step(test_host(2), *plan);
  ASSERT_TRUE(seconds.ok()) << seconds.status().to_string();
  EXPECT_GT(*seconds, 0);
  // A session without representatives would have executors and memory of each.
  const auto device = open_device("sim", test_host(2), {.stands_for = (*plan)->device()});
  const auto session = Session::create(test_host(2), *plan, {.device = *device});
  EXPECT_EQ(session.status().code(), Code::unsupported);
  EXPECT_NE(session.status().message().find("4096"), std::string::npos) << session.status().to_string();
}

// Of ranks that differ none stands for others.
TEST(Representatives, AreNeededForMoreRanksThanAProcessHas) {
  const TemporaryFolder folder;
  const std::string path = folder / "machine.json";
  std::ofstream(path) << R"({"measured": {"device": "two kinds", "version": "0", "error": 0.1, "error_90th": 0.2},
    "bandwidth": 900e9, "host_bandwidth": 12e9, "products": {"f32": 15.7e12}, "elementwise": {"f32": 15.7e12},
    "links": [{"bandwidth": 1e12, "seconds": 1e-7}], "launch_seconds": 1e-7,
    "kinds": [{"devices": 1}, {"devices": 1, "speed": 0.5}]})";
  auto options = layout_options(GraphModel::parse(model(8192)), 8192, at_level("run", ""));
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  options->device = cat("cpu@", path);
  const auto plan = layout_plan(options);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const auto seconds = seconds_of_step(test_host(2), *plan);
  EXPECT_EQ(seconds.status().code(), Code::unsupported);
  EXPECT_NE(seconds.status().message().find("8192 ranks cannot be simulated"), std::string::npos)
      << seconds.status().to_string();
}

}  // namespace
}  // namespace epl::representatives_test
