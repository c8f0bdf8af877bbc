// What a step asks of a device and of its links: the numbers of the simulated step, told apart.
#include "core/compile/step_costs.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/compile/overview.h"
#include "core/frontend/template.h"
#include "core/runtime/rehearsal.h"
#include "tests/runtime/graph_model.h"
#include "tests/temporary_folder.h"

namespace epl::step_costs_test {
namespace {

// A table of a machine with these rates, and with hosts of four ranks.
std::string machine(double bandwidth, double rate) {
  return cat(R"({"measured": {"device": "hosts", "version": "0", "error": 0.1, "error_90th": 0.2}, "bandwidth": )",
             bandwidth, R"(, "host_bandwidth": 12e9, "products": {"f32": )", rate, R"(}, "elementwise": {"f32": )",
             rate / 2, R"(}, "links": [{"devices": 4, "bandwidth": 1e11, "seconds": 1e-7},
             {"bandwidth": 1e8, "seconds": 1e-6}], "launch_seconds": 1e-7})");
}

class StepCosts : public testing::Test {
 protected:
  StepCosts() {
    const ModelTemplate* row = template_table().find("gpt2");
    Attributes options;
    for (const Option& spec : row->options) options.set(spec.name, spec.value);
    for (const auto& [name, value] :
         {std::pair("layers", 2), {"width", 32}, {"heads", 2}, {"vocab", 64}, {"context", 16}})
      options.set(name, int64_t{value});
    EXPECT_TRUE(row->write(options, folder_ / "gpt.onnx", nullptr).ok());
  }

  // And a step of it in virtual time.
  bool plan(int64_t ranks, std::string_view strategy, const std::string& table) {
    PlanOptions options;
    options.model = *load_model(folder_ / "gpt.onnx");
    options.binding.input_shapes = {{options.model->inputs()[0].name, Shape{8, 16}}};
    options.train.loss.name = "softmax_cross_entropy";
    options.train.optimizer = "adamw";
    options.ranks = ranks;
    options.evaluate = options.predict = false;
    options.strategy = *parse_strategy(strategy);
    std::ofstream(folder_ / "machine.json", std::ios::trunc) << table;
    options.device = "cpu@" + (folder_ / "machine.json");
    const auto made = CompiledPlan::create(test_host(1), options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (!made.ok()) return false;
    plan_ = *made;
    auto rehearsal = rehearse(test_host(1), plan_);
    EXPECT_TRUE(rehearsal.ok()) << rehearsal.status().to_string();
    if (!rehearsal.ok()) return false;
    rehearsal_ = *std::move(rehearsal);
    overview_ = make_overview(*plan_, rehearsal_);
    return true;
  }

  TemporaryFolder folder_;
  std::shared_ptr<const CompiledPlan> plan_;
  Rehearsal rehearsal_;
  Overview overview_;
};

TEST_F(StepCosts, ARooflineIsWhatKernelsTake) {
  for (const char* strategy : {"{}", R"({"pipeline.num_micro_batch": 4})"}) {
    ASSERT_TRUE(plan(1, strategy, machine(1e9, 1e9)));
    const StageRoofline& all = overview_.virtual_devices.front().roofline;
    const RankTrace& rank = rehearsal_.trace.ranks.front();
    double seconds = 0;
    int64_t kernels = 0;
    for (const TraceEvent& event : rank.events) {
      const Instruction* in = rank.instruction(event);
      if (!in || in->transfer) continue;
      seconds += event.end - event.begin;
      ++kernels;
    }
    EXPECT_EQ(all.kernels, kernels);
    EXPECT_NEAR(all.seconds, seconds, 1e-6 * seconds) << strategy;
    EXPECT_GE(all.seconds * (1 + 1e-9), std::max(all.computing, all.memory) + all.launching);
    EXPECT_LE(all.seconds, (all.computing + all.memory + all.launching) * (1 + 1e-9));
    // All but what transfers compute.
    EXPECT_LE(all.flops, rank.program->flops);
    EXPECT_GT(all.flops, 0.9 * rank.program->flops);
    EXPECT_NEAR(all.memory, all.bytes / 1e9, 1e-9 * all.memory);
    bool products = false;
    for (const StageRoofline::Part& part : all.parts) {
      const bool is_product = part.kind == WorkKind::product;
      products = products || is_product;
      EXPECT_DOUBLE_EQ(part.rate, is_product ? 1e9 : 0.5e9);
      EXPECT_NEAR(part.computing, part.flops / part.rate, 1e-9 * part.computing);
    }
    EXPECT_TRUE(products);
  }
}

TEST_F(StepCosts, TheSlowerOfTwoBoundsAStage) {
  ASSERT_TRUE(plan(1, "{}", machine(1e6, 1e12)));
  EXPECT_TRUE(overview_.virtual_devices.front().roofline.is_bound_by_memory());
  EXPECT_NE(explain(*plan_, overview_).find("; memory bounds it; memory has 1.0 MB/s, "), std::string::npos)
      << explain(*plan_, overview_);
  ASSERT_TRUE(plan(1, "{}", machine(1e12, 1e6)));
  EXPECT_FALSE(overview_.virtual_devices.front().roofline.is_bound_by_memory());
  const std::string text = explain(*plan_, overview_);
  for (const char* part : {"; computing bounds it; ", "products of f32 1.0 Mflop/s", "other work of f32 500.0 kflop/s"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("link-capacity bound"), std::string::npos) << "one rank moves nothing";
}

TEST_F(StepCosts, CallsTakeWhatTheyTakeInAStep) {
  for (const char* strategy : {"{}", R"({"zero.level": "v1"})", R"({"default": {"split": 2}, "split.sequence": true})",
                               R"({"pipeline.num_stages": 2, "pipeline.num_micro_batch": 4})"}) {
    ASSERT_TRUE(plan(8, strategy, machine(1e9, 1e9)));
    ASSERT_FALSE(overview_.collectives.empty()) << strategy;
    for (const Overview::Collective& one : overview_.collectives) {
      EXPECT_GE(one.links.level, 0) << strategy << ": " << one.what;
      EXPECT_GT(one.links.least, 0) << strategy << ": " << one.what;
      EXPECT_GE(one.links.seconds, one.links.least) << strategy << ": " << one.what << " over " << one.axis;
      EXPECT_NEAR(one.links.seconds, one.moving, 0.01 * one.moving)
          << strategy << ": " << one.what << " over " << one.axis << ", " << one.block;
    }
    for (const Overview::VirtualDevice& one : overview_.virtual_devices) {
      ASSERT_EQ(one.links.uses.size(), 2u);
      EXPECT_NEAR(one.links.uses[0].seconds + one.links.uses[1].seconds, one.links.all.seconds, 1e-12);
      EXPECT_LE(one.links.all.least, one.links.all.seconds) << strategy;
    }
  }
}

TEST_F(StepCosts, TwoLevelsComeNearerToTheBound) {
  ASSERT_TRUE(plan(8, "{}", machine(1e9, 1e9)));
  const StepLinks flat = overview_.virtual_devices.front().links;
  EXPECT_EQ(flat.uses[0].bytes, 0) << "the link between hosts joins all of them";
  EXPECT_EQ(flat.all.level, 1);
  ASSERT_TRUE(plan(8, R"({"communication.hierarchical": true})", machine(1e9, 1e9)));
  const StepLinks levels = overview_.virtual_devices.front().links;
  EXPECT_TRUE(levels.all.two_levels);
  EXPECT_GT(levels.uses[0].bytes, 0);
  EXPECT_LT(levels.uses[1].bytes, flat.uses[1].bytes);
  EXPECT_DOUBLE_EQ(levels.all.least, flat.all.least) << "the same bytes of each rank";
  EXPECT_LT(levels.all.seconds, flat.all.seconds);
  const std::string text = explain(*plan_, overview_);
  for (const char* part : {"links of a step, and what a rank", "blocks of 4 ranks (100.0 GB/s, 100.0 ns a message): ",
                           "any ranks (100.0 MB/s, ", "link-capacity bound of a step: ", "links of any ranks",
                           " in two levels, links need ", " times as long"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

}  // namespace
}  // namespace epl::step_costs_test
