// A device that decides by itself whether a step is applied: what learns, is refused and is stopped there is what the
// host would have decided, whatever order streams take. A command that fails leaves the state as it was, or the session
// says that it is torn.
#include <gtest/gtest.h>

#include <limits>

#include "core/program/transfer.h"
#include "core/runtime/rehearsal.h"
#include "tests/backend/failing_device.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/trained.h"

namespace epl::decided_step_test {
namespace {

constexpr std::string_view model = R"(graph mlp(x: f32[8,12] batch 0) {
  w1: f32[12,16] = param
  b1: f32[16] = param
  w2: f32[16,4] = param
  forward:
  h: f32[8,16] = linear(x, w1, b1)
  a: f32[8,16] = relu(h)
  y: f32[8,4] = linear(a, w2)
  output y = y
}
)";
constexpr std::string_view in_stages = R"("pipeline.strategy": "1F1B", "scopes": [
  {"name": "first", "replicate": 1, "match": ["h*", "a"]}, {"name": "second", "replicate": 1, "match": ["*"]}])";

struct Layout {
  int64_t micro_batches = 1, ranks = 1;
  std::string_view keys;
  std::string text() const { return cat(micro_batches, " micro-batches on ", ranks, " ranks ", keys); }
};
constexpr Layout layouts[] = {
    {1, 1},           {4, 1}, {1, 2}, {2, 2}, {1, 2, R"("zero.level": "v0")"}, {2, 4, R"("zero.level": "v0")"},
    {2, 2, in_stages}};

std::string far_name(int kinds) {
  static const bool added = [] {
    for (int k = 1; k <= 4; ++k) add_backend(far_backend(cat("far_decides", k), 1, k, true));
    return true;
  }();
  return added ? cat("far_decides", kinds) : std::string();
}

Result<std::shared_ptr<const CompiledPlan>> plan_on(const std::string& device, const Layout& layout,
                                                    bool keeps_gradients = false) {
  const std::string keys = layout.keys.empty() ? "" : cat(", ", layout.keys);
  auto options = layout_options(GraphModel::parse(model), layout.ranks,
                                cat("{\"pipeline.num_micro_batch\": ", layout.micro_batches, keys, "}"));
  if (options.ok()) {
    options->device = device;
    options->train.keep_gradients = keeps_gradients;
  }
  return layout_plan(options);
}

// The second one is not finite.
std::vector<Tensor> batch(int step) {
  std::vector<Tensor> inputs = {Tensor({DType::f32, {8, 12}}), Tensor({DType::i64, {8}})};
  for (int64_t e = 0; e < inputs[0].elements(); ++e) inputs[0].set(e, philox_uniform(step, e) - 0.5);
  for (int i = 0; i < 8; ++i) inputs[1].set_int(i, (i + step) % 4);
  if (step == 1) inputs[0].set(17, std::numeric_limits<double>::quiet_NaN());
  return inputs;
}

std::vector<Tensor> state_of(Session& session) {
  std::vector<Tensor> all;
  for (const StateSlot& slot : session.plan().state().slots()) all.push_back(*session.state().get(slot.name));
  return all;
}

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) { return identical(x, y); });
}

std::unique_ptr<Session> session_of(const std::shared_ptr<const CompiledPlan>& plan,
                                    const std::shared_ptr<Device>& device = nullptr) {
  auto session = Session::create(test_host(2), plan, {.seed = 7, .device = device});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  return session.ok() ? std::move(*session) : nullptr;
}

struct Learned {
  std::vector<double> losses;
  std::vector<bool> applied;
  std::vector<Tensor> state;
};

Learned learn(const std::shared_ptr<const CompiledPlan>& plan) {
  Learned out;
  const auto session = session_of(plan);
  for (int s = 0; session && s < 4; ++s) {
    const std::vector<Tensor> before = state_of(*session);
    StepMetrics metrics;
    const Status status = session->step(batch(s), metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    out.applied.push_back(metrics.skipped.ok());
    EXPECT_EQ(same(before, state_of(*session)), s == 1) << "step " << s;
    if (s != 1) out.losses.push_back(metrics.loss);
  }
  if (session) {
    EXPECT_EQ(session->memory_bytes_used(), PlanMemory(*plan).peak());
    out.state = state_of(*session);
  }
  return out;
}

TEST(DecidedStep, IsWhatTheHostWouldDecide) {
  for (const Layout& layout : layouts) {
    auto plan = plan_on("cpu", layout);
    ASSERT_TRUE(plan.ok()) << layout.text() << ": " << plan.status().to_string();
    const Learned here = learn(*plan);
    EXPECT_EQ(here.applied, (std::vector<bool>{true, false, true, true})) << layout.text();
    for (int kinds = 1; kinds <= 4; ++kinds) {
      auto far = plan_on(far_name(kinds), layout);
      ASSERT_TRUE(far.ok()) << far.status().to_string();
      for (uint64_t seed = 1; seed <= 4; ++seed) {
        reseed(*(*far)->device(), seed);
        const Learned there = learn(*far);
        EXPECT_EQ(there.losses, here.losses) << layout.text() << ", " << kinds << " kinds, seed " << seed;
        EXPECT_EQ(there.applied, here.applied) << layout.text() << ", " << kinds << " kinds, seed " << seed;
        EXPECT_TRUE(same(there.state, here.state)) << layout.text() << ", " << kinds << " kinds, seed " << seed;
      }
    }
  }
}

// One instruction says it, behind everything; programs of other devices have none.
TEST(DecidedStep, StandsWhereTheStateBeginsToChange) {
  for (const Layout& layout : layouts) {
    auto here = plan_on("cpu", layout), far = plan_on(far_name(4), layout);
    ASSERT_TRUE(here.ok() && far.ok()) << here.status().to_string() << far.status().to_string();
    for (const Program& program : (*here)->entry(EntryKind::train)->programs) {
      EXPECT_LT(program.decided_at, 0);
      for (const Instruction& in : program.instructions) EXPECT_FALSE(in.transfer && in.transfer->decides);
    }
    for (const Program& program : (*far)->entry(EntryKind::train)->programs) {
      EXPECT_GE(program.decided_at, 0);
      int count = 0;
      for (int i = 0; i < std::ssize(program.instructions); ++i) {
        const Instruction& in = program.instructions[static_cast<size_t>(i)];
        if (!in.transfer || !in.transfer->decides) continue;
        ++count;
        EXPECT_EQ(i, program.commit_begin);
      }
      EXPECT_EQ(count, 1) << print_program(program);
      const auto again = parse_program(print_program(program), (*far)->device()->kernels());
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      EXPECT_EQ(print_program(*again), print_program(program));
      EXPECT_EQ(again->decided_at, program.decided_at);
    }
  }
}

// A batch is refused by its own half of the step, and an update alone has no verdict.
TEST(DecidedStep, IsMadeInHalves) {
  for (const Layout& layout : {layouts[0], layouts[1], layouts[3]}) {
    std::vector<std::vector<Tensor>> states;
    for (const std::string& device : {std::string("cpu"), far_name(4)}) {
      auto plan = plan_on(device, layout, true);
      ASSERT_TRUE(plan.ok()) << layout.text() << ": " << plan.status().to_string();
      const auto session = session_of(*plan);
      ASSERT_TRUE(session);
      for (int s = 0; s < 3; ++s) {
        StepMetrics metrics;
        const Status gradients = session->gradients(batch(s), metrics);
        ASSERT_TRUE(gradients.ok()) << device << ": " << gradients.to_string();
        EXPECT_EQ(metrics.skipped.ok(), s != 1) << device << ", step " << s;
        if (s == 1) continue;
        const Status applied = session->apply(metrics);
        ASSERT_TRUE(applied.ok()) << device << ": " << applied.to_string();
      }
      states.push_back(state_of(*session));
    }
    EXPECT_TRUE(same(states[0], states[1])) << layout.text();
  }
}

TEST(DecidedStep, IsSimulated) {
  for (const Layout& layout : layouts) {
    auto plan = plan_on(far_name(4), layout);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const auto rehearsal = rehearse(test_host(2), *plan);
    ASSERT_TRUE(rehearsal.ok()) << layout.text() << ": " << rehearsal.status().to_string();
    EXPECT_GT(rehearsal->trace.end(), 0) << layout.text();
  }
}

// Each command in turn: nothing has changed, or the session says so.
TEST(DecidedStep, HappensOrDoesNotWhereACommandFails) {
  int unchanged = 0, torn = 0;
  for (const Layout& layout : {layouts[0], layouts[1], layouts[3], layouts[4]}) {
    auto plan = plan_on(far_name(4), layout);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    Device& device = *(*plan)->device();
    const auto twin = session_of(*plan);
    StepMetrics metrics;
    ASSERT_TRUE(twin->step(batch(0), metrics).ok());
    const std::vector<Tensor> stepped = state_of(*twin);
    auto session = session_of(*plan);
    const std::vector<Tensor> before = state_of(*session);
    for (int64_t command = 0;; ++command) {
      const std::string said = cat(layout.text(), ", command ", command);
      fail_at(device, command);
      const Status status = session->step(batch(0), metrics);
      fail_at(device, -1);
      if (status.ok()) {
        EXPECT_GT(command, 20) << said;
        break;
      }
      if (session->state().healthy()) {
        ++unchanged;
        ASSERT_TRUE(same(state_of(*session), before)) << said << ": " << status.to_string();
        continue;
      }
      ++torn;
      session = session_of(*plan);
    }
    EXPECT_TRUE(same(state_of(*session), stepped)) << layout.text();
  }
  EXPECT_GT(unchanged, 3 * torn);
  EXPECT_GT(torn, 0);
}

// A call that is stopped is stopped on all ranks, and changes nothing, or it is too late to stop it.
TEST(DecidedStep, IsNotAppliedWhereItIsStopped) {
  int stopped = 0, late = 0;
  for (const Layout& layout : layouts) {
    auto plan = plan_on(far_name(1), layout);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const auto device = std::make_shared<FailingDevice>((*plan)->device());
    const auto session = session_of(*plan, device);
    ASSERT_TRUE(session);
    device->arm();
    StepMetrics metrics;
    ASSERT_TRUE(session->step(batch(0), metrics).ok()) << layout.text();
    const int64_t commands = device->counted().at(0).commands;
    for (int64_t command = 0; command < commands; ++command) {
      const std::string said = cat(layout.text(), ", at command ", command, " of ", commands);
      const std::vector<Tensor> before = state_of(*session);
      StopToken token;
      device->call = [&] { token.cancel(); };
      device->arm(0, command, Fails::calls);
      const Status status = session->step(batch(0), metrics, {.stop = Stop(&token, nullptr, 0)});
      device->arm();
      ASSERT_TRUE(session->state().healthy()) << said << ": " << status.to_string();
      EXPECT_EQ(status.code(), status.ok() ? Code::ok : Code::cancelled) << said << ": " << status.to_string();
      EXPECT_EQ(same(state_of(*session), before), !status.ok()) << said << ": " << status.to_string();
      ++(status.ok() ? late : stopped);
    }
  }
  EXPECT_GT(stopped, 50);
  EXPECT_GT(late, 10);
}

}  // namespace
}  // namespace epl::decided_step_test
