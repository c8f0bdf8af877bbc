// A plan as people look at it: a step in virtual time, told apart into computing, moving and waiting, what is in memory
// when, and a reason for each cut.
#include "core/compile/overview.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/base/json.h"
#include "core/compile/trace_file.h"
#include "core/frontend/template.h"
#include "core/program/describe.h"
#include "core/runtime/rehearsal.h"
#include "core/runtime/session.h"
#include "tests/runtime/graph_model.h"
#include "tests/temporary_folder.h"

namespace epl::overview_test {
namespace {

std::shared_ptr<const Model> gpt() {
  const ModelTemplate* row = template_table().find("gpt2");
  Attributes options;
  for (const Option& spec : row->options) options.set(spec.name, spec.value);
  for (const auto& [name, value] :
       {std::pair("layers", 4), {"width", 32}, {"heads", 2}, {"vocab", 64}, {"context", 16}})
    options.set(name, int64_t{value});
  const std::string path = program_folder() / "gpt.onnx";
  EXPECT_TRUE(row->write(options, path, nullptr).ok());
  return *load_model(path);
}

std::shared_ptr<const CompiledPlan> plan_of(int64_t ranks, std::string_view strategy, Shape batch = {8, 16}) {
  PlanOptions options;
  options.model = gpt();
  options.binding.input_shapes = {{options.model->inputs()[0].name, std::move(batch)}};
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "adamw";
  options.ranks = ranks;
  options.evaluate = options.predict = false;
  options.strategy = *parse_strategy(strategy);
  auto plan = CompiledPlan::create(test_host(1), options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return plan.ok() ? *plan : nullptr;
}

// Two stages of two layers, each cut over two ranks, twice.
constexpr std::string_view nested = R"({"pipeline.num_micro_batch": 4, "scopes": [
  {"name": "first", "split": 2, "match": ["embedded", "hidden", "transformer.h.0", "transformer.h.0.*",
                                          "transformer.h.1", "transformer.h.1.*"]},
  {"name": "second", "split": 2, "match": "*"}]})";

TEST(Overview, AStepIsComputingMovingAndWaiting) {
  const auto plan = plan_of(8, nested);
  ASSERT_TRUE(plan);
  const auto rehearsal = rehearse(test_host(1), plan);
  ASSERT_TRUE(rehearsal.ok()) << rehearsal.status().to_string();
  const StepTrace& trace = rehearsal->trace;
  ASSERT_EQ(trace.ranks.size(), 8u);
  const double begin = trace.begin(), end = trace.end();
  EXPECT_GT(end, begin);
  for (const RankTrace& rank : trace.ranks) {
    size_t instructions = 1;  // the ranks agree once
    for (const BlockCall& call : rank.program->calls) {
      const auto block = std::ranges::find(rank.program->blocks, call.id(), &Block::id);
      instructions += static_cast<size_t>(block->last - block->first);
    }
    EXPECT_EQ(rank.events.size(), instructions);
    for (const TraceEvent& event : rank.events) {
      EXPECT_LE(event.begin, event.moves);
      EXPECT_LE(event.moves, event.end);
    }
    const RankTime time = time_of(rank, begin, end);
    EXPECT_GT(time.computing, 0);
    EXPECT_GT(time.moving, 0);
    EXPECT_GT(time.waiting, 0);
    EXPECT_NEAR(time.computing + time.moving + time.waiting, end - begin, 1e-9 * (end - begin));
  }
  // A message moves for both of its ranks in the same time.
  const Overview overview = make_overview(*plan, *rehearsal);
  const auto moving = [&](std::string_view what, int virtual_device, std::string_view block) {
    const auto found = std::ranges::find_if(overview.collectives, [&](const Overview::Collective& one) {
      return one.what == what && one.virtual_device == virtual_device && one.block == block;
    });
    EXPECT_NE(found, overview.collectives.end()) << what;
    return found == overview.collectives.end() ? Overview::Collective() : *found;
  };
  const auto send = moving("send", 0, "forward"), receive = moving("receive", 1, "forward");
  EXPECT_EQ(send.calls, 4);
  EXPECT_EQ(send.bytes, receive.bytes);
  EXPECT_NEAR(send.moving, receive.moving, 1e-12);
  EXPECT_EQ(send.axis, "second");
  // For each micro-batch one for the embedding, whose rows are cut, and two for each of two layers: Megatron's.
  EXPECT_EQ(moving("all_reduce", 0, "forward").calls, (1 + 2 * 2) * 4);
}

TEST(Overview, RanksThatDoTheSameAreOneLine) {
  const auto plan = plan_of(8, nested);
  ASSERT_TRUE(plan);
  const Overview overview = make_overview(*plan, *rehearse(test_host(1), plan));
  ASSERT_EQ(overview.rows.size(), 2u);
  EXPECT_EQ(overview.rows[0].ranks, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(overview.rows[1].ranks, (std::vector<int>{4, 5, 6, 7}));
  for (const Overview::Row& row : overview.rows) {
    double at = 0;
    std::set<std::string> kinds;
    for (const Overview::Span& span : row.spans) {
      EXPECT_GE(span.begin, at - 1e-12);
      EXPECT_LE(span.end, overview.seconds * (1 + 1e-9));
      at = span.end;
      kinds.insert(span.kind);
    }
    EXPECT_EQ(kinds, (std::set<std::string>{"forward", "backward", "update", "moving"}));
    // The first stage waits while the second one is alone with a micro-batch, and the other way round.
    double busy = 0;
    for (const Overview::Span& span : row.spans) busy += span.end - span.begin;
    EXPECT_LT(busy, 0.95 * overview.seconds);
  }
}

TEST(Overview, MemoryOverTimeHasThePlansPeak) {
  for (const auto& [ranks, strategy] : {std::pair(8, nested), {2, R"({"pipeline.num_micro_batch": 4})"}, {1, "{}"}}) {
    const auto plan = plan_of(ranks, strategy);
    ASSERT_TRUE(plan);
    const Overview overview = make_overview(*plan, *rehearse(test_host(1), plan));
    for (const Overview::Row& row : overview.rows) {
      const Program& program = plan->entries().front().programs[static_cast<size_t>(row.virtual_device)];
      const std::vector<int64_t> live = live_bytes(program);
      const int64_t most = *std::ranges::max_element(live);
      EXPECT_LE(most, program.memories[0].arena_live_bytes) << strategy;
      EXPECT_GT(most, program.memories[0].arena_live_bytes * 9 / 10) << strategy;
      EXPECT_EQ(std::ranges::max_element(row.memory, {}, [](const auto& p) { return p.second; })->second, most);
    }
  }
}

TEST(Overview, EveryCutHasAReason) {
  const auto plan = plan_of(8, nested);
  ASSERT_TRUE(plan);
  const Plan& decided = plan->entries().front().plan;
  for (const NodeId n : decided.graph->node_ids()) {
    const std::string& why = decided.why[n];
    const auto& sharding = decided.node_shardings[n];
    const std::string& name = decided.graph->node(n).name;
    const bool shared = why.find("each copy of the weight ") != std::string::npos;
    EXPECT_EQ(sharding.cut_by(decided.mesh().find(data_axis)),
              shared || why.find("cut by samples") != std::string::npos)
        << name;
    for (const int axis : decided.task_graphs[0].split) {
      if (sharding.cut_by(axis)) {
        EXPECT_NE(why.find(" instead of "), std::string::npos) << name << ": " << why;
      }
    }
  }
  const Overview overview = make_overview(*plan, *rehearse(test_host(1), plan));
  const auto tensor = [&](std::string_view name) {
    return *std::ranges::find(overview.tensors, name, &Overview::Tensor::name);
  };
  EXPECT_EQ(tensor("transformer.h.0.mlp.c_fc.weight").sharding, "[-, split]");
  const std::string reason = tensor("transformer.h.0.mlp.c_fc.weight").why;
  EXPECT_TRUE(reason.starts_with("cut by columns: ")) << reason;
  EXPECT_TRUE(reason.ends_with("; in first, whose pattern matches its name (transformer.h.0.mlp.c_fc reads it)"))
      << reason;
  EXPECT_NE(reason.find(" more than a share of the work"), std::string::npos) << reason;
  EXPECT_NE(tensor("transformer.h.0.mlp.c_proj.weight").why.find("cut by rows: "), std::string::npos);
  EXPECT_EQ(tensor("transformer.h.3.mlp.c_fc.weight").scope, "second");
  EXPECT_EQ(tensor("transformer.h.0.ln_1.weight").shards, 1);
  EXPECT_EQ(
      tensor("transformer.wte.weight").why,
      "second uses it as well: first keeps it replicated, sends it there in each step, and gets its gradient back");
  const std::string text = explain(*plan, overview);
  for (const char* part :
       {"virtual device of task graph first (stage 0, ", "): ranks 0 to 3 (data 2 x split 2), ",
        "transformer.h.*.mlp.c_fc.weight (2): f32[32,128] [-, split]", "all_reduce over split (2 ranks)",
        "predicted step on simulated cpu_core", "waiting for others"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

// Viewers take slices of a thread for nested ones: they must be.
TEST(Overview, ATraceFileNests) {
  const auto plan = plan_of(8, nested);
  ASSERT_TRUE(plan);
  const auto rehearsal = rehearse(test_host(1), plan);
  ASSERT_TRUE(rehearsal.ok());
  const auto file = parse_json(print_trace(*plan, rehearsal->trace, "sim"));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  struct Slice {
    double begin, end;
  };
  std::map<std::pair<int64_t, int64_t>, std::vector<Slice>> threads;
  std::map<int64_t, std::string> arrows;
  std::map<std::string, int> names;
  for (const Json& event : *file->find("traceEvents")) {
    const std::string& kind = event.find("ph")->text();
    const int64_t rank = event.find("pid")->get<int64_t>(), stream = event.find("tid")->get<int64_t>();
    if (kind == "s" || kind == "f") arrows[event.find("id")->get<int64_t>()] += kind;
    if (kind == "M") continue;
    ++names[event.find("name")->text()];
    if (kind != "X") continue;
    const double begin = event.find("ts")->get<double>();
    threads[{rank, stream}].push_back({begin, begin + event.find("dur")->get<double>()});
  }
  EXPECT_EQ(threads.size(), 16u);  // every rank has a stream for sends
  for (auto& [thread, slices] : threads) {
    std::ranges::stable_sort(slices, [](const Slice& a, const Slice& b) { return a.begin < b.begin; });
    std::vector<Slice> open;
    for (const Slice& slice : slices) {
      while (!open.empty() && open.back().end <= slice.begin + 1e-6) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(slice.end, open.back().end + 1e-6) << "rank " << thread.first;
      }
      open.push_back(slice);
    }
  }
  // 4 micro-batches go up once and down twice, and the weights that both stages use once each way, for 4 pairs of
  // ranks.
  EXPECT_EQ(arrows.size(), 4u * (4 + 8 + 2));
  for (const auto& [id, ends] : arrows) EXPECT_TRUE(ends == "sf" || ends == "fs") << ends;
  EXPECT_EQ(names["forward 3"], 8);
  EXPECT_EQ(names["transformer.h.0.mlp.c_fc"], 4 * 4);
}

// What is asked of a plan of 64 ranks is little work: one program for each virtual device, and no memory.
TEST(Overview, SixtyFourRanksAreExplainedAtOnce) {
  const auto plan = plan_of(64, R"({"pipeline.num_micro_batch": 4, "reproducible.units": 64, "scopes": [
      {"name": "first", "split": 2, "match": ["embedded", "hidden", "transformer.h.0*", "transformer.h.1*"]},
      {"name": "second", "split": 2, "match": "*"}]})",
                            {64, 16});
  ASSERT_TRUE(plan);
  const auto rehearsal = rehearse(test_host(1), plan);
  ASSERT_TRUE(rehearsal.ok()) << rehearsal.status().to_string();
  EXPECT_EQ(rehearsal->trace.ranks.size(), 64u);
  EXPECT_EQ(make_overview(*plan, *rehearsal).rows.size(), 2u);
}

// On a device that computes, times are the host's.
TEST(Overview, ARealStepIsRecorded) {
  const auto plan = plan_of(2, R"({"default": {"split": 2}})");
  ASSERT_TRUE(plan);
  auto session = Session::create(test_host(2), plan, {.seed = 1});
  ASSERT_TRUE(session.ok());
  std::vector<Tensor> inputs;
  for (const Port& port : plan->entries().front().inputs) inputs.emplace_back(port.global_type);
  StepMetrics metrics;
  ASSERT_TRUE((*session)->step(inputs, metrics).ok());
  for (const RankTrace& rank : (*session)->trace().ranks) EXPECT_TRUE(rank.events.empty());
  (*session)->record(2);
  for (int step = 0; step < 3; ++step) ASSERT_TRUE((*session)->step(inputs, metrics).ok());
  const StepTrace trace = (*session)->trace();
  ASSERT_EQ(trace.ranks.size(), 2u);
  for (const RankTrace& rank : trace.ranks) {
    EXPECT_EQ(rank.events.front().step, 1);
    EXPECT_EQ(rank.events.back().step, 2);  // there was no room for a third
    double before = 0;
    for (const TraceEvent& event : rank.events) {
      EXPECT_GE(event.begin, before);
      EXPECT_GE(event.end, event.moves);
      before = event.begin;
    }
  }
}

}  // namespace
}  // namespace epl::overview_test
