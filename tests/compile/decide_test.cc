// Deciding makes no program: a search tries plans of a deep model on many ranks without lowering any.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "core/compile/entry.h"
#include "core/strategy/pass.h"
#include "tests/runtime/graph_model.h"
#include "tests/strategy/deep_gpt.h"

namespace epl::decide_test {
namespace {

// The processor, which counts the kernels that it is asked to prepare.
class Counting final : public Device {
 public:
  explicit Counting(std::shared_ptr<Device> cpu) : cpu_(std::move(cpu)) {
    for (const OpDef* op : op_table().all()) {
      for (KernelRow row : cpu_->kernels().rows(op->name)) {
        row.prepare = [this, inside = row.prepare](const KernelQuery& query) -> Result<Prepared> {
          ++prepared;
          return inside ? inside(query) : Prepared{};
        };
        table_.add(std::move(row));
      }
    }
  }
  int prepared = 0;
  std::string description() const override { return "counting"; }
  const KernelTable& kernels() const override { return table_; }
  bool shares_host_memory() const override { return true; }
  Result<std::unique_ptr<Buffer>> allocate(int64_t) override { return unsupported("nothing is allocated for a plan"); }
  Result<std::unique_ptr<Stream>> create_stream(int) override { return unsupported("nothing runs"); }
  std::unique_ptr<Event> create_event() override { return nullptr; }
  Result<std::vector<std::unique_ptr<Communicator>>> create_group(const std::string&, int) override {
    return unsupported("nothing runs");
  }

 private:
  const std::shared_ptr<Device> cpu_;
  KernelTable table_;
};

class Deciding : public ::testing::Test {
 protected:
  void SetUp() override {
    auto cpu = open_device("cpu", test_host(1));
    ASSERT_TRUE(cpu.ok()) << cpu.status().to_string();
    device_ = std::make_shared<Counting>(*cpu);
  }
  EntryMaker maker() const { return {.options = options_, .device = *device_, .loss = loss_, .before = before_}; }
  static Graph train_graph(const DeepGpt& gpt) {
    auto forward = parse_graph(deep_gpt(gpt));
    EPL_CHECK(forward.ok(), forward.status().to_string());
    TrainOptions train;
    train.loss.name = "softmax_cross_entropy";
    train.optimizer = "adamw";
    train.optimizer_options = {{"lr", 0.01}};
    auto step = build_train_step(*forward, train);
    EPL_CHECK(step.ok(), step.status().to_string());
    return std::move(step->graph);
  }
  Result<Entry> decided(const Graph& graph, const std::string& strategy, int64_t ranks) {
    options_.strategy = *parse_strategy(strategy);
    options_.ranks = ranks;
    return decide_entry(maker(), EntryKind::train, 0, graph, {});
  }

  PlanOptions options_;
  LossFacts loss_;
  std::vector<Entry> before_;
  std::shared_ptr<Counting> device_;
};

TEST_F(Deciding, OfADeepModelOnManyRanksMakesNoProgram) {
  constexpr double generous_seconds = 10;  // it takes a third of one on a machine with nothing else to do
  const Graph graph = train_graph({.layers = 96});
  for (
      const char* strategy :
      {R"({"default": {"split": 8}})", R"({"default": {"split": 8}, "split.sequence": true})",
       R"({"default": {"split": 4}, "pipeline.num_stages": 8, "pipeline.num_micro_batch": 8, "reproducible.units": 64})",
       R"({"default": {"split": 2}, "pipeline.num_stages": 32, "pipeline.num_micro_batch": 32, "reproducible.units": 64,
            "pipeline.strategy": "ZB-H1"})"}) {
    const auto before = std::chrono::steady_clock::now();
    const auto entry = decided(graph, strategy, 64);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
    ASSERT_TRUE(entry.ok()) << strategy << ": " << entry.status().to_string();
    EXPECT_LT(took.count(), generous_seconds) << strategy;
    EXPECT_EQ(entry->plan.ranks(), 64);
    EXPECT_TRUE(entry->programs.empty() && entry->locals.empty());
    EXPECT_EQ(device_->prepared, 0) << "a program was made";
  }
}

// Nodes of stages that are split alike are decided together, not once for each stage.
TEST_F(Deciding, DoesNotGoOverTheGraphForEachStage) {
  const auto graph = std::make_shared<const Graph>(train_graph({.layers = 64}));
  const auto seconds = [&](const std::string& strategy) {
    const PlanRequest request{.graph = graph, .strategy = *parse_strategy(strategy), .ranks = 64};
    double best = std::numeric_limits<double>::infinity();  // of three: others may be at work on the machine
    for (int i = 0; i < 3; ++i) {
      const auto before = std::chrono::steady_clock::now();
      const auto plan = decide(request);
      EPL_CHECK(plan.ok(), plan.status().to_string());
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count());
    }
    return best;
  };
  const double one = seconds(R"({"default": {"split": 2}, "reproducible.units": 64})");
  EXPECT_LT(seconds(R"({"default": {"split": 2}, "pipeline.num_stages": 32, "reproducible.units": 64})"), 6 * one);
}

TEST_F(Deciding, AndLoweringAreTwoSteps) {
  auto entry = decided(train_graph({.layers = 1, .batch = 8, .positions = 4, .heads = 2, .width = 8, .words = 16}),
                       R"({"default": {"split": 2}})", 4);
  ASSERT_TRUE(entry.ok()) << entry.status().to_string();
  const std::string plan = print_plan(entry->plan);
  const Status lowered = lower_entry(maker(), *entry);
  ASSERT_TRUE(lowered.ok()) << lowered.to_string();
  EXPECT_EQ(entry->programs.size(), 1u);
  EXPECT_GT(device_->prepared, 0);
  EXPECT_EQ(print_plan(entry->plan), plan) << "lowering decides nothing";
}

// The same graph on machines whose links differ: where a collective takes long, copies update all of their weights.
TEST_F(Deciding, AsksTheMachine) {
  const auto graph = std::make_shared<const Graph>(
      train_graph({.layers = 1, .batch = 8, .positions = 4, .heads = 2, .width = 64, .words = 64}));
  const auto shared = [&](double link_seconds) {
    PlanRequest request{.graph = graph, .ranks = 2};
    request.machine.links.front().seconds = link_seconds;
    const auto plan = decide(request);
    EPL_CHECK(plan.ok(), plan.status().to_string());
    const auto in_shards = [&](NodeId n) {
      return plan->why.size() > 0 && plan->why[n].find("updates a shard") != std::string::npos;
    };
    return std::ranges::count_if(graph->node_ids(), in_shards);
  };
  EXPECT_GT(shared(1e-7), shared(1e-5));
  EXPECT_EQ(shared(1), 0);
}

}  // namespace
}  // namespace epl::decide_test
