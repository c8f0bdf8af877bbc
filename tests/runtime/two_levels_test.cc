// `communication.hierarchical` on a machine of two hosts of four ranks: a shorter step with the same bits.
#include <gtest/gtest.h>

#include <fstream>

#include "core/runtime/auto_parallel.h"
#include "core/runtime/rehearsal.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"

namespace epl::two_levels_test {
namespace {

constexpr const char* model = R"(graph layers(x: f32[32,48] batch 0) {
  first: f32[48,48] = param
  last: f32[48,5] = param
  forward:
  h: f32[32,48] = matmul(x, first)
  act: f32[32,48] = gelu(h)
  y: f32[32,5] = matmul(act, last)
  output y = y
}
)";

std::vector<Tensor> batch(int step) {
  Tensor x(TensorType{DType::f32, {32, 48}}), target(TensorType{DType::i64, {32}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>((i * 37 + step * 11) % 101) / 50 - 1);
  for (int64_t i = 0; i < target.elements(); ++i) target.set_int(i, (i + step) % 5);
  return {x, target};
}

// Two hosts of four ranks, between which links are slow.
void write_machine(const std::string& path) {
  std::ofstream(path) << R"({"measured": {"device": "two hosts", "version": "0", "error": 0.1, "error_90th": 0.2},
    "bandwidth": 900e9, "host_bandwidth": 12e9, "products": {"f32": 15.7e12}, "elementwise": {"f32": 15.7e12},
    "links": [{"devices": 4, "bandwidth": 1e11, "seconds": 1e-7}, {"bandwidth": 1e8, "seconds": 1e-7}],
    "launch_seconds": 1e-7})";
}

TEST(TwoLevels, TakeLessTimeAndHaveTheSameBits) {
  const TemporaryFolder folder;
  const std::string path = folder / "hosts.json";
  write_machine(path);
  const auto plan = [&](const std::string& keys) {
    auto options = layout_options(GraphModel::parse(model), 8, at_level("data", keys));
    if (options.ok()) options->device = cat("cpu@", path);
    return layout_plan(options);
  };
  const auto flat = plan(""), levels = plan(R"("communication.hierarchical": true)");
  ASSERT_TRUE(flat.ok()) << flat.status().to_string();
  ASSERT_TRUE(levels.ok()) << levels.status().to_string();
  const auto before = seconds_of_step(test_host(2), *flat), seconds = seconds_of_step(test_host(2), *levels);
  ASSERT_TRUE(before.ok()) << before.status().to_string();
  ASSERT_TRUE(seconds.ok()) << seconds.status().to_string();
  EXPECT_LT(*seconds, *before);
  expect_same(train(levels, "two levels", 3, batch), train(flat, "one level", 3, batch), "two hosts of four ranks");
}

// Eight copies are the only plan. What is left open is how they sum.
TEST(TwoLevels, AreFoundWhereTheyAreLeftOpen) {
  const TemporaryFolder folder;
  const std::string path = folder / "hosts.json";
  write_machine(path);
  const auto taken = [&](const std::string& keys) {
    auto options = layout_options(
        GraphModel::parse(model), 8,
        at_level("data", cat(R"("auto.auto_parallel": true, "pipeline.num_stages": 1, "pipeline.num_micro_batch": 1,
          "zero.level": "off")",
                             keys)));
    EXPECT_TRUE(options.ok()) << options.status().to_string();
    options->device = cat("cpu@", path);
    return plan_in_parallel(test_host(2), *options);
  };
  const auto open = taken(""), off = taken(R"(, "communication.hierarchical": false)");
  ASSERT_TRUE(open.ok()) << open.status().to_string();
  ASSERT_TRUE(off.ok()) << off.status().to_string();
  EXPECT_TRUE((*open)->options().strategy.flag("communication.hierarchical"));
  EXPECT_FALSE((*off)->options().strategy.flag("communication.hierarchical"));
  EXPECT_LT(*seconds_of_step(test_host(2), *open), *seconds_of_step(test_host(2), *off));
  expect_same(train(open, "found", 3, batch), train(off, "one level", 3, batch), "two hosts of four ranks");
}

}  // namespace
}  // namespace epl::two_levels_test
