// How keys are chosen for `memory.budget`: alike in all processes of a job, without files that nobody asked for, by as
// few plans as can tell, and with errors that are no answer to whether a plan fits.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/compile/budget.h"
#include "core/compile/plan_decisions.h"
#include "core/runtime/rehearsal.h"
#include "core/runtime/within_budget.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"

namespace epl::chosen_keys_test {
namespace {

// Results of layers take about what their weights take.
std::string layers() {
  std::string text = "graph layers(x: f32[64,96] batch 0) {\n  last: f32[96,4] = param\n";
  for (int i = 0; i < 3; ++i) text += cat("  w", i, ": f32[96,96] = param\n  b", i, ": f32[96] = param\n");
  text += "  forward:\n  r0: f32[64,96] = relu(x)\n";
  for (int i = 0; i < 3; ++i) {
    text += cat("  h", i, ": f32[64,96] = linear(r", i, ", w", i, ", b", i, ")\n  a", i, ": f32[64,96] = gelu(h", i,
                ")\n  r", i + 1, ": f32[64,96] = add(r", i, ", a", i, ")\n");
  }
  return text + "  y: f32[64,4] = matmul(r3, last)\n  output y = y\n}\n";
}

PlanOptions options_of(int64_t ranks, const std::string& keys,
                       const std::shared_ptr<const Model>& model = GraphModel::parse(layers())) {
  auto options = layout_options(model, ranks, at_level("data", keys));
  EXPECT_TRUE(options.ok()) << options.status().to_string();
  return *std::move(options);
}

PlanOptions with_budget(PlanOptions options, int64_t bytes) {
  EXPECT_TRUE(set_config(options.strategy, "memory.budget", cat(bytes)).ok());
  return options;
}

std::string in_folder(const TemporaryFolder& folder) { return cat(R"("offload.folder": ")", folder.path(), "\""); }

int64_t peak_of(const PlanOptions& options, int threads) {
  const auto plan = CompiledPlan::create(test_host(threads), options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return plan.ok() ? PlanMemory(**plan).peak() : 0;
}

// What processes compare where they meet.
std::string decided(const CompiledPlan& plan) {
  std::string out;
  for (const Entry& entry : plan.entries()) out += plan.text(entry.kind, "local").value();
  return out;
}

TEST(ChosenKeys, DoNotDependOnTheThreadsOfAProcess) {
  const TemporaryFolder folder;
  const int64_t most = peak_of(options_of(2, ""), 2);
  PlanOptions options = options_of(2, in_folder(folder));
  options.local_ranks = 1;
  std::set<std::string> plans;
  for (const int percent : {100, 64}) {
    const int64_t bytes = most * percent / 100;
    std::string first;
    for (const int threads : {1, 16}) {
      const auto plan = plan_within_budget(test_host(threads), with_budget(options, bytes));
      if (plan.ok()) {
        EXPECT_LE(PlanMemory(**plan).peak(), bytes);
      }
      const std::string made = plan.ok() ? decided(**plan) : std::string(code_name(plan.status().code()));
      if (first.empty()) first = made;
      EXPECT_EQ(made, first) << percent << " %, " << threads << " threads";
    }
    plans.insert(first);
  }
  EXPECT_GT(plans.size(), 1u);
}

// Where all ranks are threads of one process there is nobody to agree with.
TEST(ChosenKeys, LeaveARankAllItsThreadsThatFit) {
  PlanOptions options = options_of(2, R"("offload.level": "", "pipeline.num_micro_batch": 1, "zero.level": "off")");
  const int64_t one = peak_of(options, 2), many = peak_of(options, 32);
  ASSERT_LT(one, many) << "kernels on more threads need more";
  const auto threads_of = [&](const PlanOptions& job, int64_t bytes) {
    const auto plan = plan_within_budget(test_host(32 / (job.local_ranks == 1 ? 2 : 1)), with_budget(job, bytes));
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    if (!plan.ok()) return 0;
    EXPECT_LE(PlanMemory(**plan).peak(), bytes);
    const std::vector<std::string>& notes = (*plan)->entry(EntryKind::train)->plan.notes;
    const bool told = std::ranges::any_of(
        notes, [](const std::string& note) { return note.find("of the 16 threads") != std::string::npos; });
    EXPECT_EQ(told, (*plan)->threads_per_rank() < 16);
    return (*plan)->threads_per_rank();
  };
  EXPECT_EQ(threads_of(options, many), 16);
  options.local_ranks = 1;
  EXPECT_EQ(threads_of(options, many), 16);
  const int fewer = threads_of(options, (one + many) / 2);
  EXPECT_GE(fewer, 1);
  EXPECT_LT(fewer, 16);
}

bool offloads(const CompiledPlan& plan) { return !plan.options().strategy.text("offload.level").empty(); }

TEST(ChosenKeys, PutNoFilesWhereNobodyWantsThem) {
  const TemporaryFolder folder;
  const int64_t half = peak_of(options_of(1, ""), 2) * 6 / 10;
  const auto refused = plan_within_budget(test_host(2), with_budget(options_of(1, ""), half));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("with offload.folder values may lie in files"), std::string::npos)
      << refused.status().to_string();
  const auto plan = plan_within_budget(test_host(2), with_budget(options_of(1, in_folder(folder)), half));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_TRUE(offloads(**plan));
  // Who asks for it by itself gets it as before.
  const auto asked = plan_within_budget(test_host(2), with_budget(options_of(1, R"("offload.level": "v0")"), half * 2));
  ASSERT_TRUE(asked.ok()) << asked.status().to_string();
  EXPECT_TRUE(offloads(**asked));
}

// Neither more micro-batches nor another memory makes a step of one rank faster, and rehearsals agree.
TEST(ChosenKeys, AreNotTriedWhereNothingCanBeFaster) {
  const TemporaryFolder folder;
  const PlanOptions options = options_of(1, in_folder(folder));
  const auto plan = plan_within_budget(test_host(2), with_budget(options, int64_t{1} << 40));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  ASSERT_EQ((*plan)->options().tried.size(), 1u);
  EXPECT_EQ((*plan)->options().tried.front().keys, "");
  const auto tight = plan_within_budget(test_host(2), with_budget(options, PlanMemory(**plan).peak() * 6 / 10));
  ASSERT_TRUE(tight.ok()) << tight.status().to_string();
  EXPECT_GT((*tight)->options().tried.size(), 3u);
}

constexpr const char* more_work[] = {
    R"("offload.level": "v0", "offload.values": "states")",
    R"("offload.level": "v0", "offload.values": "states, weights, gradients, activations")",
    R"("pipeline.num_micro_batch": 2)", R"("pipeline.num_micro_batch": 4)"};

TEST(ChosenKeys, ThatAreLeftOutTakeLonger) {
  const auto seconds = [](int64_t ranks, const std::string& keys) {
    PlanOptions options = options_of(ranks, keys);
    options.keeps_to_budget = false;
    const auto plan = CompiledPlan::create(test_host(2), options);
    EXPECT_TRUE(plan.ok()) << keys << ": " << plan.status().to_string();
    return plan.ok() ? *seconds_of_step(test_host(2), *plan) : 0.0;
  };
  for (const char* level : {"off", "v1", "v2"}) {
    const std::string zero = cat(R"("zero.level": ")", level, "\"");
    for (const int64_t ranks : {1, 2}) {
      const double without = seconds(ranks, zero);
      for (const char* more : more_work) EXPECT_GE(seconds(ranks, cat(zero, ", ", more)), without) << more << level;
    }
  }
}

std::string state_type_of(const CompiledPlan& plan) {
  const Attribute* set = plan.options().train.optimizer_options.find("state_type");
  return set ? std::get<std::string>(*set) : "f32";
}

// States change numbers, so they are stored in fewer bytes only where the strategy allows it.
TEST(ChosenKeys, StoreStatesInBf16OnlyIfAllowed) {
  const std::string closed = R"("offload.level": "", "pipeline.num_micro_batch": 1)";
  const std::string allowed = cat(closed, R"(, "memory.allow_state_type": "bf16")");
  PlanOptions narrow = options_of(1, cat(closed, R"(, "gradient_checkpoint.type": "auto")"));
  const int64_t wide_peak = peak_of(narrow, 2);
  narrow.train.optimizer_options.set("state_type", std::string("bf16"));
  const int64_t between = (peak_of(narrow, 2) + wide_peak) / 2;
  EXPECT_FALSE(plan_within_budget(test_host(2), with_budget(options_of(1, closed), between)).ok());
  PlanOptions job = with_budget(options_of(1, allowed), between);
  const auto plan = plan_within_budget(test_host(2), job);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(state_type_of(**plan), "bf16");
  EXPECT_LE(PlanMemory(**plan).peak(), between);
  // What the trainer says is not changed.
  job.train.optimizer_options.set("state_type", std::string("f32"));
  EXPECT_FALSE(plan_within_budget(test_host(2), job).ok());
  // A plan file has what was chosen.
  const auto file = std::make_shared<const PlanFile>(decisions_of(**plan, "test"));
  PlanOptions again = with_budget(options_of(1, allowed), between);
  ASSERT_TRUE(take_decisions(*file, "test", true, again).ok());
  again.decisions = file;
  const auto read = plan_within_budget(test_host(2), again);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(state_type_of(**read), "bf16");
  EXPECT_EQ(PlanMemory(**read).peak(), PlanMemory(**plan).peak());
}

// Binds a graph, and fails from one call on for some calls.
class Failing : public GraphModel {
 public:
  Failing(const GraphModel& any, Code code, int from, int calls)
      : GraphModel(any), code_(code), from_(from), to_(from + calls) {}
  Result<Graph> bind(const Binding& binding) const override {
    const int call = calls_++;
    if (call >= from_ && call < to_) return error(code_, "a failure");
    return GraphModel::bind(binding);
  }
  int calls() const { return calls_; }

 private:
  const Code code_;
  const int from_, to_;
  mutable int calls_ = 0;
};

std::shared_ptr<const Failing> failing(Code code, int from, int calls) {
  const auto model = GraphModel::parse(layers());
  return std::make_shared<Failing>(static_cast<const GraphModel&>(*model), code, from, calls);
}

// A combination that is not possible is left out, and any other failure is told.
TEST(ChosenKeys, AreNotChosenAroundFailures) {
  const TemporaryFolder folder;
  const auto plain = failing(Code::internal, 1 << 20, 0);
  const int64_t peak = peak_of(options_of(1, "", plain), 2);
  const int for_a_plan = plain->calls();
  const auto chosen = [&](Code code) {
    const PlanOptions options = options_of(1, in_folder(folder), failing(code, for_a_plan, for_a_plan));
    return plan_within_budget(test_host(2), with_budget(options, peak * 8 / 10));
  };
  for (const Code code : {Code::unsupported, Code::invalid_argument}) EXPECT_TRUE(chosen(code).ok());
  for (const Code code : {Code::internal, Code::exhausted, Code::out_of_memory})
    EXPECT_EQ(chosen(code).status().code(), code);
}

}  // namespace
}  // namespace epl::chosen_keys_test
