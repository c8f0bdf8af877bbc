// Training an MLP through every layer: plan, local graph, program, executor; the same bits under every layout.
#include "core/runtime/session.h"

#include <gtest/gtest.h>

#include <atomic>

#include "core/compile/plan_memory.h"
#include "tests/runtime/mlp.h"

namespace epl::session_test {
namespace {

struct Layout {
  int64_t ranks = 1;
  std::string micro_batches = "1";
  int threads = 1;
};

struct Trained {
  std::vector<double> losses;
  std::vector<Tensor> weights;
};

PlanOptions options_for(const Layout& layout, const Attributes& loss_options = {}) {
  PlanOptions options = mlp_options(layout.ranks, layout.micro_batches).value();
  options.train.loss.options = loss_options;
  return options;
}

Trained train(const Layout& layout, int steps, const Attributes& loss_options = {}) {
  Host host = test_host(layout.threads);
  auto plan = CompiledPlan::create(host, options_for(layout, loss_options));
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  if (!plan.ok()) return {};
  auto session = Session::create(host, *plan, {.seed = 7});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  Trained out;
  for (int s = 0; s < steps; ++s) {
    StepMetrics metrics;
    Status status = (*session)->step(mlp_batch(s), metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    out.losses.push_back(metrics.loss);
  }
  EXPECT_EQ((*session)->memory_bytes_used(), PlanMemory(**plan).peak());
  for (const char* name : {"w1", "b1", "w2"}) out.weights.push_back(*(*session)->state().get(name));
  return out;
}

TEST(Session, LearnsTheSameBitsUnderEveryLayout) {
  Trained one = train({}, 20);
  ASSERT_EQ(one.losses.size(), 20u);
  EXPECT_LT(one.losses[16], one.losses[0]);
  for (const Layout& layout : {Layout{1, "1", 2}, Layout{1, "2", 1}, Layout{1, "4", 2}, Layout{2, "1", 2},
                               Layout{2, "2", 2}, Layout{4, "2", 4}}) {
    Trained other = train(layout, 20);
    ASSERT_EQ(other.losses.size(), 20u);
    EXPECT_EQ(other.losses, one.losses) << layout.ranks << " ranks, " << layout.micro_batches << " micro-batches";
    for (size_t i = 0; i < one.weights.size(); ++i) EXPECT_TRUE(identical(one.weights[i], other.weights[i])) << i;
  }
}

// The weights of the targets are of the full batch, whatever its cut.
TEST(Session, SmoothedAndWeightedLossesLearnTheSameBitsUnderEveryLayout) {
  const Attributes loss = {{"label_smoothing", 0.1}, {"class_weights", Doubles{0.5, 2, 1, 0.25}}};
  const Trained one = train({}, 5, loss), plain = train({}, 5);
  ASSERT_EQ(one.losses.size(), 5u);
  EXPECT_NE(one.losses, plain.losses);
  for (const Layout& layout : {Layout{1, "4", 2}, Layout{2, "2", 2}, Layout{4, "1", 4}}) {
    const Trained other = train(layout, 5, loss);
    EXPECT_EQ(other.losses, one.losses) << layout.ranks << " ranks, " << layout.micro_batches << " micro-batches";
    for (size_t i = 0; i < one.weights.size(); ++i) EXPECT_TRUE(identical(one.weights[i], other.weights[i])) << i;
  }
}

TEST(Plan, TextsReadBack) {
  Host host = test_host(1);
  auto plan = CompiledPlan::create(host, options_for({2, "2", 2}));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const Entry& entry = (*plan)->entries().front();
  std::string text = print_plan(entry.plan);
  auto parsed = parse_plan(text, entry.plan.graph);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string() << text;
  EXPECT_EQ(print_plan(*parsed), text);
  std::string local = print_local(entry.locals[0]);
  auto local_parsed = parse_local(local);
  ASSERT_TRUE(local_parsed.ok()) << local_parsed.status().to_string() << local;
  EXPECT_EQ(print_local(*local_parsed), local);
  std::string program = print_program(entry.programs[0]);
  auto program_parsed = parse_program(program, (*plan)->device()->kernels());
  ASSERT_TRUE(program_parsed.ok()) << program_parsed.status().to_string() << program;
  EXPECT_EQ(print_program(*program_parsed), program);
  for (size_t cut = 0; cut < program.size(); cut += 37) {  // damage is an error, never a crash
    auto damaged = parse_program(program.substr(0, cut) + program.substr(std::min(program.size(), cut + 3)),
                                 (*plan)->device()->kernels());
    if (!damaged.ok()) {
      EXPECT_FALSE(damaged.status().message().empty());
    }
  }
  auto graph = parse_graph(print_graph(*entry.graph));
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(print_graph(*graph), print_graph(*entry.graph));
}

// One product is most of what there is to do. The clock moves on whenever it is read, so that a deadline lies between
// the reading before the product and the end of it.
TEST(Session, ADeadlineIsSeenInTheMiddleOfAnInstruction) {
  constexpr std::string_view wide = R"(graph wide(x: f32[512,64] batch 0) {
  w1: f32[64,2048] = param
  w2: f32[2048,4] = param
  forward:
  h: f32[512,2048] = matmul(x, w1)
  a: f32[512,2048] = relu(h)
  y: f32[512,4] = matmul(a, w2)
  output y = y
}
)";
  for (const int threads : {1, 2}) {
    std::atomic<int64_t> readings{0};
    Host host = test_host(threads);
    host.seconds = [&] { return static_cast<double>(++readings); };
    PlanOptions options = options_for({.threads = threads});
    options.model = GraphModel::parse(wide);
    auto plan = CompiledPlan::create(host, options);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    auto session = Session::create(host, *plan, {.seed = 7});
    ASSERT_TRUE(session.ok());
    Tensor x(TensorType{DType::f32, {512, 64}}), t(TensorType{DType::i64, {512}}), y(TensorType{DType::f32, {512, 4}});
    for (int i = 0; i < x.elements(); ++i) x.set(i, philox_uniform(1, i) - 0.5);
    const auto instructions = static_cast<int64_t>((*plan)->entry(EntryKind::predict)->programs[0].instructions.size());
    std::vector<Tensor> outputs = {y};
    // A deadline that passes after as many readings as there are instructions: between them it would hardly be noticed.
    const int64_t before = readings;
    const Status late = (*session)->predict(std::vector<Tensor>{x}, outputs,
                                            {.stop = Stop::after(host.seconds, static_cast<double>(instructions) + 4)});
    EXPECT_EQ(late.code(), Code::deadline_exceeded) << late.to_string();
    EXPECT_LE(readings - before, instructions + 10 + threads);
    // A step that was stopped in the middle has changed nothing, and the next one is whole.
    const Tensor w1 = *(*session)->state().get("w1");
    StepMetrics metrics;
    const Status stopped =
        (*session)->step(std::vector<Tensor>{x, t}, metrics, {.stop = Stop::after(host.seconds, 12)});
    EXPECT_EQ(stopped.code(), Code::deadline_exceeded) << stopped.to_string();
    EXPECT_TRUE(identical(*(*session)->state().get("w1"), w1));
    EXPECT_EQ((*session)->host_state().steps_done(), 0);
    ASSERT_TRUE((*session)->step(std::vector<Tensor>{x, t}, metrics, {.stop = Stop::after(host.seconds, 1e9)}).ok());
    auto other = Session::create(host, *plan, {.seed = 7});
    StepMetrics same;
    ASSERT_TRUE((*other)->step(std::vector<Tensor>{x, t}, same, {}).ok());
    EXPECT_EQ(metrics.loss, same.loss);
    EXPECT_TRUE(
        identical(*(*session)->state().get("w1"), *(*other)->state().get("w1")));  // watched or not, the same bits
  }
}

}  // namespace
}  // namespace epl::session_test
