// Optimizer states that are stored in bf16 (`state_type`): the bits of one rank under every layout, half the bytes,
// and checkpoints that go on under another layout and with states of another type.
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/converted.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"

namespace epl::bf16_states_test {
namespace {

// Weights with long rows, short ones, and a vector; 33 hidden units are divided by no number of ranks.
constexpr std::string_view wide_mlp = R"(graph mlp(x: f32[8,12] batch 0) {
  w1: f32[12,64] = param
  b1: f32[64] = param
  w2: f32[64,64] = param
  w3: f32[64,33] = param
  w4: f32[33,64] = param
  w5: f32[64,4] = param
  forward:
  h: f32[8,64] = matmul(x, w1)
  hb: f32[8,64] = add(h, b1)
  a: f32[8,64] = relu(hb)
  g: f32[8,64] = matmul(a, w2)
  skip: f32[8,64] = add(g, a)
  r: f32[8,64] = relu(skip)
  u: f32[8,33] = matmul(r, w3)
  t: f32[8,33] = tanh(u)
  v: f32[8,64] = matmul(t, w4)
  y: f32[8,4] = matmul(v, w5)
  output y = y
}
)";

constexpr std::string_view stages = R"("scopes": [{"name": "first", "replicate": 1, "match": ["h*", "a"]},
                                                  {"name": "second", "replicate": 1, "match": ["*"]}])";

struct Layout {
  std::string name = "one rank";
  int64_t ranks = 1;
  std::string keys = {};
  std::string level = "data";
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

struct Job {
  std::string optimizer = "adamw", state_type = "bf16", device = "cpu";
};

using Plan = std::shared_ptr<const CompiledPlan>;

Result<Plan> plan_of(const Layout& layout, const Job& job = {}) {
  auto options = layout_options(GraphModel::parse(wide_mlp), layout.ranks, at_level(layout.level, layout.keys));
  if (options.ok()) {
    options->device = job.device;
    options->train.optimizer = job.optimizer;
    options->train.optimizer_options = {{"lr", 0.01}, {"state_type", job.state_type}};
  }
  return layout_plan(options);
}

std::vector<Tensor> batch(int step) {
  Tensor x(TensorType{DType::f32, {8, 12}}), target(TensorType{DType::i64, {8}});
  for (int i = 0; i < 96; ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
  for (int i = 0; i < 8; ++i) target.set_int(i, i == 3 ? -100 : (i + step) % 4);
  return {x, target};
}

Trained trained(const Layout& layout, const Job& job = {}, int steps = 6) {
  return train(plan_of(layout, job), cat(layout.name, ", ", job.optimizer), steps, batch);
}

class Bf16States : public ::testing::TestWithParam<Layout> {};

TEST_P(Bf16States, HaveTheBitsOfOneRank) {
  const Layout alone{.level = GetParam().level};
  for (const std::string optimizer : {"adamw", "adam", "momentum", "rmsprop", "adagrad"})
    expect_same(trained(GetParam(), {optimizer}), trained(alone, {optimizer}), GetParam().name);
}

// Of every state of every rank.
TEST_P(Bf16States, TakeHalfTheBytes) {
  const auto plan = plan_of(GetParam()), wide = plan_of(GetParam(), {.state_type = "f32"});
  ASSERT_TRUE(plan.ok() && wide.ok()) << plan.status().to_string();
  int states = 0;
  for (int t = 0; t < (*plan)->virtual_devices(); ++t) {
    for (const StateSlot& slot : (*plan)->state_of(t).slots()) {
      const StateSlot* other = (*wide)->state_of(t).find(slot.name);
      ASSERT_NE(other, nullptr) << slot.name;
      EXPECT_EQ(slot.local.bytes() * (slot.kind == ValueKind::state ? 2 : 1), other->local.bytes()) << slot.name;
      states += slot.kind == ValueKind::state;
    }
  }
  EXPECT_GT(states, 0);
}

INSTANTIATE_TEST_SUITE_P(
    , Bf16States,
    testing::Values(Layout{"two_copies", 2}, Layout{"four_copies", 4},
                    Layout{"micro_batches", 1, R"("pipeline.num_micro_batch": 4)"},
                    Layout{"zero", 2, R"("zero.level": "v0")"},
                    Layout{"zero_of_four", 4, R"("zero.level": "v0", "pipeline.num_micro_batch": 2)"},
                    Layout{"zero_that_pays", 4, R"("zero.level": "auto")"},
                    Layout{"in_stages", 2, cat(R"("pipeline.num_micro_batch": 2, )", stages)},
                    Layout{"late_weights", 4,
                           cat(R"("pipeline.num_micro_batch": 2, "pipeline.strategy": "ZB-H1", )",
                               R"("zero.level": "v0", )", stages)},
                    Layout{"split", 2, R"("default": {"split": 2})", "layout"},
                    Layout{"uneven_split", 3, R"("default": {"split": 3})", "layout"},
                    Layout{"all_of_it", 8,
                           R"("default": {"split": 2}, "zero.level": "v0", "pipeline.num_micro_batch": 2)", "layout"}),
    [](const auto& info) { return info.param.name; });

int64_t item(const CompiledPlan& plan, std::string_view name) {
  for (const MemoryItem& one : PlanMemory(plan).items()) {
    if (one.what == name) return one.bytes;
  }
  return -1;
}

// By the byte, in what a plan says and in what a session uses (`train` compares both).
TEST(Bf16StatesInPlans, AreExact) {
  const auto narrow = plan_of({}), wide = plan_of({}, {.state_type = "f32"});
  ASSERT_TRUE(narrow.ok() && wide.ok());
  constexpr std::string_view states = "optimizer state and padding", constants = "constants", arena = "arena";
  constexpr int64_t elements = 12 * 64 + 64 + 64 * 64 + 2 * 64 * 33 + 64 * 4;
  EXPECT_EQ(item(**wide, states), 2 * 4 * elements);
  EXPECT_EQ(item(**narrow, states), 2 * 2 * elements);
  EXPECT_EQ(item(**narrow, "parameters"), item(**wide, "parameters"));
  // No state is in the arena in float32.
  EXPECT_EQ(item(**narrow, arena), item(**wide, arena));
  // The numbers of rows and of columns, once for each shape.
  EXPECT_GT(item(**narrow, constants), item(**wide, constants));
  EXPECT_LT(item(**narrow, constants), item(**wide, constants) + 4096);
  trained({});
}

TEST(Bf16StatesFarAway, HaveTheSameBits) {
  add_backend(far_backend("far_bf16_states", 5));
  expect_same(trained({"far", 2, R"("zero.level": "v0")"}, {.device = "far_bf16_states"}, 3), trained({}, {}, 3),
              "far");
}

// The same task is learned about as well.
TEST(Bf16StatesLearn, AsStatesOfFloat32) {
  for (const std::string optimizer : {"adamw", "momentum", "rmsprop", "adagrad"}) {
    const auto same_batch = [](int) { return batch(1); };
    const Trained wide = train(plan_of({}, {optimizer, "f32"}), optimizer, 60, same_batch),
                  narrow = train(plan_of({}, {optimizer, "bf16"}), optimizer, 60, same_batch);
    ASSERT_EQ(narrow.losses.size(), 60u);
    EXPECT_EQ(narrow.losses[0], wide.losses[0]) << optimizer;
    EXPECT_LT(wide.losses.back(), 0.8 * wide.losses[0]) << optimizer;
    for (size_t s = 0; s < 60; ++s)
      EXPECT_NEAR(narrow.losses[s], wide.losses[s], 0.02 * wide.losses[0]) << optimizer << ", step " << s;
  }
}

std::unique_ptr<Session> session_of(const Layout& layout, const Job& job = {}, uint64_t seed = 7) {
  auto session = Session::create(test_host(2), *plan_of(layout, job), {.seed = seed});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  return std::move(*session);
}

double step(Session& session, int s) {
  StepMetrics metrics;
  const Status status = session.step(batch(s), metrics);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return metrics.loss;
}

void expect_same_state(Session& a, Session& b) {
  for (const StateSlot& slot : a.plan().state().slots())
    EXPECT_TRUE(identical(*a.state().get(slot.name), *b.state().get(slot.name))) << slot.name;
}

// A session that goes on from a checkpoint has the bits of one that was not interrupted, whatever the layouts are.
TEST(Bf16StatesInCheckpoints, GoOnUnderAnotherLayout) {
  const TemporaryFolder temporary;
  const Layout alone, copies{"copies", 4, R"("zero.level": "v0")"}, micro{"", 2, R"("pipeline.num_micro_batch": 2)"};
  for (const auto& [from, to] : {std::pair(alone, alone), std::pair(alone, copies), std::pair(copies, micro)}) {
    const std::string folder = temporary / cat(from.name, to.name);
    const auto session = session_of(from);
    for (int s = 0; s < 3; ++s) step(*session, s);
    ASSERT_TRUE(save_session(*session, folder).ok());
    const auto other = session_of(to, {}, 1);  // the checkpoint has the seed
    ASSERT_TRUE(load_session(*other, folder).ok());
    expect_same_state(*session, *other);
    for (int s = 3; s < 6; ++s) EXPECT_EQ(step(*session, s), step(*other, s));
    expect_same_state(*session, *other);
    const auto read = load_checkpoint(folder);
    ASSERT_TRUE(read.ok());
    for (const CheckpointItem& one : read->items)
      EXPECT_EQ(one.value.dtype(), one.kind == StateKind::optimizer ? DType::bf16 : DType::f32) << one.name;
  }
}

// States of another type convert, to the nearest, in all layouts.
TEST(Bf16StatesInCheckpoints, ConvertFromOtherTypes) {
  const TemporaryFolder temporary;
  const Layout alone, copies{"copies", 4, R"("zero.level": "v0")"},
      split{"split", 3, R"("default": {"split": 3})", "layout"};
  int number = 0;
  for (const auto& [from, to] : {std::pair("f32", "bf16"), std::pair("bf16", "f32")}) {
    for (const auto& [one, other] : {std::pair(alone, copies), std::pair(copies, split), std::pair(split, alone)}) {
      const std::string folder = temporary / cat(number++);
      const auto session = session_of(one, {.state_type = from});
      for (int s = 0; s < 3; ++s) step(*session, s);
      ASSERT_TRUE(save_session(*session, folder).ok());
      const auto next = session_of(other, {.state_type = to});
      const Status loaded = load_session(*next, folder);
      ASSERT_TRUE(loaded.ok()) << loaded.to_string();
      for (const StateSlot& slot : next->plan().state().slots()) {
        const Tensor was = *session->state().get(slot.name), is = *next->state().get(slot.name);
        EXPECT_EQ(is.dtype(), slot.kind == ValueKind::state ? *parse_dtype(to) : DType::f32);
        EXPECT_TRUE(identical(is, *converted(was, is.dtype()).load())) << slot.name << " to " << to;
      }
      EXPECT_TRUE(std::isfinite(step(*next, 3)));
    }
  }
}

// By name as well: states in any floating type, and nothing else.
TEST(Bf16StatesByName, AreSetInOtherTypes) {
  const auto session = session_of({"copies", 2, R"("zero.level": "v0")"});
  Tensor values(TensorType{DType::f32, {12, 64}});
  for (int64_t i = 0; i < values.elements(); ++i) values.set(i, 0.001 * static_cast<double>(i) + 1);
  ASSERT_TRUE(session->state().set("w1.square", values).ok());
  const Tensor now = *session->state().get("w1.square");
  EXPECT_TRUE(identical(now, *converted(values, DType::bf16).load()));
  ASSERT_TRUE(session->state().set("w1.mean", now).ok());
  EXPECT_TRUE(identical(*session->state().get("w1.mean"), now));
  step(*session, 0);
  EXPECT_FALSE(session->state().set("w1", now).ok()) << "a parameter has its own type";
  EXPECT_FALSE(session->state().set("w1.mean", Tensor(TensorType{DType::f32, {64, 12}})).ok());
  EXPECT_FALSE(session->state().set("w1.mean", Tensor(TensorType{DType::i32, {12, 64}})).ok());
}

}  // namespace
}  // namespace epl::bf16_states_test
