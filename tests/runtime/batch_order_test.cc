// Micro-batches that cut the batch before ranks do (`batch.order`): sums over ranks are completed in each micro-batch,
// the bits are those of one rank, and what is added up over micro-batches is a shard where copies share out the update.
#include <gtest/gtest.h>

#include "core/program/local_graph.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/skip_mlp.h"
#include "tests/runtime/trained.h"

namespace epl::batch_order_test {
namespace {

struct Layout {
  std::string name;
  int64_t ranks = 1, micro_batches = 1;
  std::string keys = {};  // of the strategy
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

struct Job {
  std::string model{skip_mlp}, order = "micro_batches", level = "off", device = "cpu";
  double clip_norm = 1;
};

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Layout& layout, const Job& job) {
  const std::string keys =
      cat(R"("batch.order": ")", job.order, R"(", "pipeline.num_micro_batch": )", layout.micro_batches,
          R"(, "zero.level": ")", job.level, "\"", layout.keys.empty() ? "" : ", ", layout.keys);
  auto options = layout_options(GraphModel::parse(job.model), layout.ranks, at_level("data", keys));
  if (options.ok()) {
    options->device = job.device;
    options->train.clip_norm = job.clip_norm;
    options->train_outputs = {"y"};
  }
  return layout_plan(options);
}

Trained trained(const Layout& layout, const Job& job, int steps = 6) {
  return train(plan_of(layout, job), cat(layout.name, ", zero.level ", job.level), steps, skip_mlp_batch);
}

class MicroBatchesFirst : public ::testing::TestWithParam<Layout> {};

TEST_P(MicroBatchesFirst, HasTheBitsOfOneRank) {
  for (const std::string_view model : {skip_mlp, dropout_mlp}) {
    for (const std::string level : {"off", "v0"}) {
      const Job job{.model = std::string(model), .level = level};
      expect_same(trained(GetParam(), job), trained({"one"}, job), GetParam().name);
    }
  }
}

TEST_P(MicroBatchesFirst, HasThemFarAway) {
  const std::string name = cat("far_order_", GetParam().name);
  add_backend(far_backend(name, 5));
  const Job job{.model = std::string(dropout_mlp), .level = "v0"};
  Job far = job;
  far.device = name;
  expect_same(trained(GetParam(), far, 3), trained({"one"}, job, 3), GetParam().name);
}

// The plan says how the batch is cut, and can be read again.
TEST_P(MicroBatchesFirst, IsInThePlan) {
  auto plan = plan_of(GetParam(), {});
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const std::string text = *(*plan)->text(EntryKind::train, "plan");
  EXPECT_NE(text.find("batch [micro_batch.data"), std::string::npos) << text;
  EXPECT_NE((*plan)->explain().find(cat(" samples = ", GetParam().micro_batches, " micro-batch(es) x ")),
            std::string::npos);
  const auto again = parse_plan(text, (*plan)->entry(EntryKind::train)->plan.graph);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(print_plan(*again), text);
}

std::vector<Layout> layouts() {
  const std::string one = R"("replicate": 1)", two = R"("replicate": 2)", four = R"("replicate": 4)";
  const std::string schedule = R"("pipeline.strategy": ")";
  return {{"two_copies", 2, 2},
          {"two_copies_in_four", 2, 4},
          {"four_copies", 4, 2},
          {"stages", 2, 4, cat(schedule, R"(1F1B", )", two_stages(one, one))},
          {"copies_of_stages", 4, 2, cat(schedule, R"(GPipe", )", two_stages(one, one))},
          {"late_weights", 4, 4, cat(schedule, R"(ZB-H1", )", two_stages(one, one))},
          {"one_to_two", 3, 2, two_stages(one, two)},
          {"two_to_one_in_four", 3, 4, two_stages(two, one)},
          {"four_to_one", 5, 2, two_stages(four, one)},
          {"two_to_four", 6, 2, two_stages(two, four)},
          {"found_stages", 4, 2, R"("pipeline.num_stages": 2)"}};
}

INSTANTIATE_TEST_SUITE_P(Layouts, MicroBatchesFirst, ::testing::ValuesIn(layouts()),
                         [](const auto& info) { return info.param.name; });

// What each micro-batch adds to gradients, in elements; sums of one number, such as the loss, aside.
int64_t accumulated(const CompiledPlan& plan) {
  const auto local = parse_local(*plan.text(EntryKind::train, "local"));
  EXPECT_TRUE(local.ok()) << local.status().to_string();
  int64_t elements = 0;
  for (const Node& node : local->graph.nodes()) {
    if (node.op->name != "accumulate") continue;
    const int64_t own = local->graph.type(node.outputs[0]).elements();
    elements += own > 1 ? own : 0;
  }
  return elements;
}

// Each copy adds up its own half of every gradient, where ranks share a micro-batch; else the full sum, and scatters
// it.
TEST(OrderOfZero, AddsUpShards) {
  const Layout layout{"two", 2, 4};
  const auto of = [&](const std::string& order, const std::string& level) {
    auto plan = plan_of(layout, {.order = order, .level = level, .clip_norm = 0});
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    return *std::move(plan);
  };
  const int64_t full = accumulated(*of("ranks", "off"));
  EXPECT_GT(full, 0);
  EXPECT_EQ(accumulated(*of("ranks", "v0")), full);
  EXPECT_EQ(accumulated(*of("micro_batches", "off")), full);
  EXPECT_EQ(accumulated(*of("micro_batches", "v0")) * 2, full);
  const auto arena = [](const CompiledPlan& plan) {
    return plan.entry(EntryKind::train)->programs.front().memories[0].arena_bytes;
  };
  EXPECT_LT(arena(*of("micro_batches", "v0")), arena(*of("ranks", "v0")));
}

// Three micro-batches of two ranks keep the tree where micro-batches come first; three ranks do not.
TEST(OrderOfThree, IsOfWhatCutsTheBatchFirst) {
  const std::string units = R"("reproducible.units": )";
  const Job job{.model = with_samples(skip_mlp, 12)};
  const auto batch = [](int step) { return skip_mlp_samples(step, 12); };
  const Layout in_three{"in_three", 2, 3, cat(units, 12)}, one{"one", 1, 3, cat(units, 12)};
  expect_same(train(plan_of(in_three, job), "in_three", 4, batch), train(plan_of(one, job), "one", 4, batch), "three");
  const std::string refused = plan_of({"ranks", 3, 2, cat(units, 12)}, job).status().message();
  EXPECT_NE(refused.find("the number of micro-batches may be another number"), std::string::npos) << refused;
  Job ranks_first = job;
  ranks_first.order = "ranks";
  EXPECT_TRUE(plan_of({"ranks", 3, 2, cat(units, 12)}, ranks_first).ok());
  EXPECT_FALSE(plan_of(in_three, ranks_first).ok());
}

// One micro-batch has no order, and neither have independent ones: the plan is the same text.
TEST(OrderOfOne, ChangesNothing) {
  for (const Layout& layout :
       {Layout{"one_turn", 2, 1}, Layout{"independent", 2, 4, R"("batch.semantics": "per_micro_batch")"}}) {
    const auto text = [&](const std::string& order) {
      return *(*plan_of(layout, {.order = order}))->text(EntryKind::train, "local");
    };
    EXPECT_EQ(text("micro_batches"), text("ranks")) << layout.name;
  }
}

// No process has a run of samples, so no output of a process alone can be merged.
TEST(OrderOfOutputs, RefusesWhatOneProcessWouldMerge) {
  const Status status = plan_of({"two", 2, 2, R"("outputs.local_concat": "y")"}, {}).status();
  EXPECT_NE(status.message().find("which come first (batch.order, zero.level)"), std::string::npos)
      << status.to_string();
}

}  // namespace
}  // namespace epl::batch_order_test
