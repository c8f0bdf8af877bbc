// Two stages of a pipeline on ranks of their own: the bits of one rank, memory known before the first step, and no more
// of it than what is alive at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "tests/backend/far_device.h"
#include "tests/runtime/pipeline_job.h"
#include "tests/thirds.h"

namespace epl::pipeline_test {
namespace {

class Pipeline : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  static Job job() {
    const std::string& name = std::get<0>(GetParam());
    return name == "gpt" ? gpt_job() : mlp_job(name == "clipped" ? 0.5 : 0);
  }
  static std::string schedule() { return std::get<1>(GetParam()); }
};

TEST_P(Pipeline, LearnsTheBitsOfOneRank) {
  EPL_ONE_OF_THREE();
  const Job work = job();
  const Trained one = train(work, {}, 4);
  ASSERT_EQ(one.losses.size(), 4u);
  for (const Layout& layout : {Layout{schedule(), 2, 1}, Layout{schedule(), 2, 2}, Layout{schedule(), 2, 4},
                               Layout{schedule(), 4, 2}, Layout{schedule(), 3, 4, "cpu", 3}}) {
    expect_same(train(work, layout, 4), one, layout);
  }
}

// The gradients of the first stage add up while its forward calls go on, which leave nothing for its backward calls.
TEST(Stages, TakeTurnsWhereNothingGoesFromOneCallToTheNext) {
  Job work = mlp_job(0);
  work.two = stages_of({R"("hb")", R"("*")"});
  const Trained one = train(work, {}, 4);
  for (const char* schedule : {"GPipe", "1F1B"}) {
    const Layout layout{schedule, 2, 8};
    expect_same(train(work, layout, 4), one, layout);
  }
}

// The loss needs no weight of it, in a stage that has other nodes or in one that then has none.
TEST(Stages, MayHaveWhatTheLossDoesNotNeed) {
  std::string text(skip_mlp);
  text.insert(text.find("  forward:"), "  spare: f32[16,3] = param\n");
  text.insert(text.find("  output"), "  z: f32[8,3] = matmul(r, spare)\n");
  text.insert(text.rfind('}'), "  output z = z\n");
  Job work = mlp_job(0.5);
  work.model = GraphModel::parse(text);
  work.loss_output = "y";
  work.three = stages_of({R"("h*", "a")", R"("g", "skip", "r", "y")", R"("z")"});
  const Trained one = train(work, {}, 3);
  for (const char* schedule : {"GPipe", "1F1B"}) {
    for (const Layout& layout :
         {Layout{schedule, 2, 2}, Layout{schedule, 3, 2, "cpu", 3}, Layout{schedule, 6, 1, "cpu", 3}})
      expect_same(train(work, layout, 3), one, layout);
  }
}

// A model whose inner tensors become outputs where they are asked for.
class WithInnerOutputs : public GraphModel {
 public:
  explicit WithInnerOutputs(const GraphModel& model) : GraphModel(model) {}
  Result<Graph> bind(const Binding& binding) const override {
    EPL_ASSIGN(Graph graph, GraphModel::bind(binding));
    for (const std::string& name : binding.inner_outputs) graph.outputs.push_back({name, graph.find(name)});
    return graph;
  }
};

// Running statistics, which the second stage learns and the first one reads when it predicts.
class WithStatistics : public GraphModel {
 public:
  WithStatistics(const GraphModel& train, const GraphModel& other) : GraphModel(train), other_(other) {}
  Result<Graph> bind(const Binding& binding) const override {
    return binding.mode == Binding::Mode::train ? GraphModel::bind(binding) : other_.bind(binding);
  }

 private:
  GraphModel other_;
};

TEST(Stages, LendStateThatOthersReadInAnotherEntry) {
  std::string text(skip_mlp);
  text.insert(text.find("  forward:"), "  running: f32[16] = buffer\n");
  std::string other = text, train_text = text;
  other.replace(other.find("a: f32[8,16] = relu(hb)"), std::string_view("a: f32[8,16] = relu(hb)").size(),
                "hs: f32[8,16] = add(hb, running)\n  a: f32[8,16] = relu(hs)");
  train_text.insert(train_text.find("  output"),
                    "  total: f32[16] = sum(r) {axes=[0],keep=false}\n  next: f32[16] = add(running, total)\n");
  train_text.insert(train_text.rfind('}'), "  commit running = next\n");
  const auto parsed = [](const std::string& one) { return dynamic_cast<const GraphModel&>(*GraphModel::parse(one)); };
  Job work = mlp_job(0.5);
  work.model = std::make_shared<WithStatistics>(parsed(train_text), parsed(other));
  const Trained one = train(work, {}, 3);
  EXPECT_NE(one.state.at("running").get(0), 0);
  for (const Layout& layout : {Layout{"1F1B", 2, 2}, Layout{"GPipe", 4, 2, "cpu", 2}})
    expect_same(train(work, layout, 3), one, layout);
}

// Both stages update them, as where a model uses one norm twice: the first reads what the second has made, and adds to
// it before the second adds again. Each adds another number to what is not 0, so the order shows in the bits.
TEST(Stages, UpdateStateInTurn) {
  std::string text(skip_mlp);
  text.insert(text.find("  forward:"), "  running: f32[16] = buffer\n  h_keeps: f32[] = const f32[](0.7)\n");
  std::string train_text = text, other = text;
  other.replace(other.find("a: f32[8,16] = relu(hb)"), std::string_view("a: f32[8,16] = relu(hb)").size(),
                "hs: f32[8,16] = add(hb, running)\n  a: f32[8,16] = relu(hs)");
  train_text.insert(train_text.find("  output"),
                    "  h_total: f32[16] = sum(hb) {axes=[0],keep=false}\n"
                    "  h_kept: f32[16] = mul(running, h_keeps)\n"
                    "  h_next: f32[16] = add(h_kept, h_total)\n"
                    "  total: f32[16] = sum(r) {axes=[0],keep=false}\n"
                    "  kept: f32[16] = mul(h_next, h_keeps)\n"
                    "  next: f32[16] = add(kept, total)\n");
  train_text.insert(train_text.rfind('}'), "  commit running = next\n");
  const auto parsed = [](const std::string& one) { return dynamic_cast<const GraphModel&>(*GraphModel::parse(one)); };
  Job work = mlp_job(0.5);
  work.model = std::make_shared<WithStatistics>(parsed(train_text), parsed(other));
  const Trained one = train(work, {}, 3);
  EXPECT_NE(one.state.at("running").get(0), 0);
  for (const Layout& layout : {Layout{"1F1B", 2, 2}, Layout{"GPipe", 4, 2, "cpu", 2}, Layout{"ZB-H1", 2, 4}})
    expect_same(train(work, layout, 3), one, layout);
}

// The loss is on a tensor that the model's output does not need: when it predicts, the last stage has nothing to do.
TEST(Stages, MayHaveNothingToPredict) {
  std::string text(skip_mlp);
  text.replace(text.find("output y = y"), std::string_view("output y = y").size(), "output a = a");
  Job work = mlp_job(0.5);
  work.model = std::make_shared<WithInnerOutputs>(dynamic_cast<const GraphModel&>(*GraphModel::parse(text)));
  work.loss_output = "y";
  const Trained one = train(work, {}, 3);
  ASSERT_EQ(one.predicted.size(), 1u);
  for (const char* schedule : {"GPipe", "1F1B"}) {
    for (const Layout& layout : {Layout{schedule, 2, 2}, Layout{schedule, 3, 4, "cpu", 3}})
      expect_same(train(work, layout, 3), one, layout);
  }
}

TEST_P(Pipeline, NeedsWhatIsAliveAtOnce) {
  for (const int64_t stages : {2, 3}) {
    for (const int64_t micro_batches : {1, 2, 4, 8}) {
      const Layout layout{schedule(), stages, micro_batches, "cpu", stages};
      auto plan = plan_of(job(), layout);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      // The search for an order of placement ends after a fixed amount of work.
      for (const Program& program : (*plan)->entries().front().programs) expect_arena(program, 1.08, layout.text());
    }
  }
}

// A plan of one stage whose nodes are of two TaskGraphs, which the same ranks run.
Plan of_two_task_graphs(const Plan& one) {
  Plan plan = one;
  plan.task_graphs.push_back({.scope = "second"});
  for (const NodeId n : plan.node_task_graph.ids().after(NodeId{plan.node_task_graph.size() / 3 - 1}))
    plan.node_task_graph[n] = plan.node_task_graph[n] == every_task_graph ? every_task_graph : 1;
  find_value_task_graphs(plan);
  return plan;
}

TEST(TaskGraphs, OfOneClassOfRanksShareTheirBlocks) {
  for (const int64_t ranks : {1, 2}) {
    auto made = plan_of(mlp_job(0.5), {"", ranks, 2});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    for (const Entry& entry : (*made)->entries()) {
      const Plan plan = of_two_task_graphs(entry.plan);
      const Status verified = verify_plan(plan);
      EXPECT_TRUE(verified.ok()) << verified.to_string();
      auto locals = partition(plan);
      ASSERT_TRUE(locals.ok()) << locals.status().to_string();
      ASSERT_EQ(locals->size(), 1u);
      EXPECT_EQ(print_local(locals->front()), print_local(entry.locals.front()));
      auto read = parse_plan(print_plan(plan), plan.graph);
      ASSERT_TRUE(read.ok()) << read.status().to_string();
      EXPECT_EQ(print_plan(*read), print_plan(plan));
    }
  }
}

TEST(TaskGraphs, WhoseRanksDoNotCallTheirBlocksAreRefused) {
  auto made = plan_of(mlp_job(0), {"1F1B", 2, 2});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const Plan& known = (*made)->entries().front().plan;
  const auto refused = [&](auto&& damage) {
    Plan plan = known;
    damage(plan);
    return verify_plan(plan).to_string();
  };
  const std::string uncalled = refused([](Plan& p) { p.task_graphs[0].stage = 7; });
  EXPECT_NE(uncalled.find("stage0 never calls forward stage 7"), std::string::npos) << uncalled;
  const std::string shared = refused([](Plan& p) { p.meshes[1].device = p.meshes[0].device; });
  EXPECT_NE(shared.find("rank 0 is of two virtual devices"), std::string::npos) << shared;
  const std::string once = refused([](Plan& p) { p.calls[1].back().stage = 1; });
  EXPECT_NE(once.find("stage1 calls post stage 1, which is of no stage"), std::string::npos) << once;
}

std::string refusal(std::string_view scopes, int64_t ranks = 2) {
  Job job = mlp_job(0);
  job.two = cat("\"scopes\": ", scopes);
  auto plan = plan_of(job, {"1F1B", ranks, 2});
  return plan.ok() ? "" : plan.status().message();
}

TEST(Stages, ThatCannotBeAreRefusedByName) {
  const auto two = [](std::string_view first, std::string_view second) {
    return cat(R"([{"name": "one", "replicate": 1, "match": [")", first,
               R"("]}, {"name": "two", "replicate": 1, "match": [")", second, R"("]}])");
  };
  EXPECT_EQ(refusal(two("h*", "*")), "");
  EXPECT_NE(refusal(two("y", "*")).find("stage one needs"), std::string::npos) << refusal(two("y", "*"));
  EXPECT_NE(refusal(two("nobody*", "*")).find("scope one matches no node: nobody*"), std::string::npos)
      << refusal(two("nobody*", "*"));
  EXPECT_NE(refusal(two("h*", "*"), 3).find("one 1 + two 1 = 2 ranks for a copy, which do not divide the 3"),
            std::string::npos)
      << refusal(two("h*", "*"), 3);
}

// A stream may run ahead of another as far as their events allow, and does.
TEST_P(Pipeline, LearnsTheSameBitsFarAway) {
  EPL_ONE_OF_THREE();
  static const bool added = (add_backend(far_backend("far_pipeline", 5)), true);
  ASSERT_TRUE(added);
  const Job work = job();
  const Trained here = train(work, {}, 2);
  for (const int64_t micro_batches : {1, 2, 4}) {
    const Layout layout{schedule(), 2, micro_batches, "far_pipeline"};
    const Trained there = train(work, layout, 2);
    EXPECT_EQ(there.losses, here.losses) << layout.text();
    for (const auto& [name, value] : here.state) EXPECT_TRUE(identical(there.state.at(name), value)) << name;
  }
}

// No node gives it, and on the far device it comes by an upload.
TEST(Stages, GiveBackAnInputAsItCame) {
  std::string text(skip_mlp);
  text.insert(text.rfind('}'), "  output given = x\n");
  Job work = mlp_job(0);
  work.model = GraphModel::parse(text);
  static const bool added = (add_backend(far_backend("far_leaves", 9)), true);
  ASSERT_TRUE(added);
  for (const char* device : {"cpu", "far_leaves"}) {
    auto plan = plan_of(work, {"1F1B", 2, 2, device});
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    auto session = Session::create(test_host(2), *plan, {.seed = 7});
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    const Tensor x = work.batch(0)[0];
    std::vector<Tensor> inputs = {x}, outputs;
    for (const Port& port : (*plan)->entry(EntryKind::predict)->outputs) outputs.emplace_back(port.global_type);
    const Status status = (*session)->predict(inputs, outputs);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(identical(outputs.at(1), x)) << device;
  }
}

// On a simulated machine: two stages of eight micro-batches are done well before one rank that has both.
TEST_P(Pipeline, StagesWorkSideBySide) {
  const auto seconds = [&](const Layout& layout) {
    auto plan = plan_of(job(), layout);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    if (!plan.ok()) return 0.0;
    auto session = Session::create(test_host(2), *plan, {.seed = 7});
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    StepMetrics metrics;
    const Status status = (*session)->step(job().batch(0), metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return (*session)->virtual_seconds();
  };
  const double one = seconds({"", 1, 8, "sim"}), two = seconds({schedule(), 2, 8, "sim"});
  EXPECT_GT(two, 0.5 * one);
  // So small a model mostly waits for messages of a microsecond.
  EXPECT_LT(two, 0.95 * one) << one;
}

TEST_P(Pipeline, PlansReadBack) {
  auto made = plan_of(job(), {schedule(), 2, 2});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  for (const Entry& entry : (*made)->entries()) {
    const std::string text = print_plan(entry.plan);
    auto plan = parse_plan(text, entry.plan.graph);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_EQ(print_plan(*plan), text);
    for (size_t t = 0; t < entry.programs.size(); ++t) {
      auto local = parse_local(print_local(entry.locals[t]));
      ASSERT_TRUE(local.ok()) << local.status().to_string();
      EXPECT_EQ(print_local(*local), print_local(entry.locals[t]));
      auto program = parse_program(print_program(entry.programs[t]), (*made)->device()->kernels());
      ASSERT_TRUE(program.ok()) << program.status().to_string();
      EXPECT_EQ(print_program(*program), print_program(entry.programs[t]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Pipeline, ::testing::Combine(::testing::Values("mlp", "clipped", "gpt"), ::testing::Values("GPipe", "1F1B")),
    [](const auto& info) {
      return cat(std::get<0>(info.param), std::get<1>(info.param) == "GPipe" ? "_gpipe" : "_one_f_one_b");
    });

}  // namespace
}  // namespace epl::pipeline_test
