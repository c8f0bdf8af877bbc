// Copies that share out the update and the optimizer's state (`zero.level` = v0 or auto): the bits of copies that do
// not, less memory, known to the byte before the first step, and state that is read, written and saved as if it were
// full.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/program/transfer.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/skip_mlp.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"

namespace epl::zero_test {
namespace {

// A weight that is used twice, and one of which no dimension has equal shards.
constexpr std::string_view tied_mlp = R"(graph mlp(x: f32[8,12] batch 0) {
  w1: f32[12,16] = param
  b1: f32[16] = param
  w2: f32[16,16] = param
  w3: f32[16,4] = param
  b3: f32[1] = param
  forward:
  h: f32[8,16] = matmul(x, w1)
  hb: f32[8,16] = add(h, b1)
  a: f32[8,16] = relu(hb)
  g: f32[8,16] = matmul(a, w2)
  r: f32[8,16] = relu(g)
  again: f32[8,16] = matmul(r, w2)
  y: f32[8,4] = matmul(again, w3)
  yb: f32[8,4] = add(y, b3)
  output y = yb
}
)";

// A large weight that divides, one that does not, and small ones.
constexpr std::string_view large_mlp = R"(graph mlp(x: f32[8,12] batch 0) {
  w1: f32[12,2049] = param
  w2: f32[2049,16] = param
  w3: f32[16,4] = param
  b3: f32[4] = param
  forward:
  h: f32[8,2049] = matmul(x, w1)
  a: f32[8,2049] = relu(h)
  g: f32[8,16] = matmul(a, w2)
  y: f32[8,4] = matmul(g, w3)
  yb: f32[8,4] = add(y, b3)
  output y = yb
}
)";

constexpr std::string_view in_stages = R"("pipeline.strategy": "1F1B", "scopes": [
  {"name": "first", "replicate": 1, "match": ["h*", "a"]}, {"name": "second", "replicate": 1, "match": ["*"]}])";
constexpr std::string_view late_weights = R"("pipeline.strategy": "ZB-H1", "scopes": [
  {"name": "first", "replicate": 1, "match": ["h*", "a"]}, {"name": "second", "replicate": 1, "match": ["*"]}])";
constexpr std::string_view degrees = R"("scopes": [
  {"name": "first", "replicate": 1, "match": ["h*", "a"]}, {"name": "second", "replicate": 2, "match": ["*"]}])";

struct Layout {
  std::string name;
  int64_t ranks = 1, micro_batches = 1;
  std::string scopes;  // of the strategy
  int shards = 2;      // of the state, at least, over the copies alone
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

struct Job {
  std::string model{skip_mlp}, optimizer = "adamw", level = "v0", device = "cpu";
  double clip_norm = 0;
};

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Layout& layout, const Job& job) {
  const std::string keys = cat("\"pipeline.num_micro_batch\": ", layout.micro_batches, ", \"zero.level\": \"",
                               job.level, "\"", layout.scopes.empty() ? "" : ", ", layout.scopes);
  auto options = layout_options(GraphModel::parse(job.model), layout.ranks, at_level("data", keys));
  if (options.ok()) {
    options->device = job.device;
    options->train.optimizer = job.optimizer;
    options->train.clip_norm = job.clip_norm;
  }
  return layout_plan(options);
}

Trained trained(const Layout& layout, const Job& job, int steps = 20) {
  return train(plan_of(layout, job), cat(layout.name, ", ", job.optimizer, ", ", job.level), steps, skip_mlp_batch);
}

Job off(Job job) {
  job.level = "off";
  return job;
}

int64_t optimizer_bytes(const CompiledPlan& plan, int virtual_device) {
  int64_t bytes = 0;
  for (const StateSlot& slot : plan.state_of(virtual_device).slots())
    bytes += slot.kind == ValueKind::state ? slot.local.bytes() : 0;
  return bytes;
}

class Zero : public ::testing::TestWithParam<Layout> {};

TEST_P(Zero, HasTheBitsOfCopiesThatUpdateEverything) {
  for (const std::string& model : {std::string(skip_mlp), std::string(tied_mlp)}) {
    for (const double clip_norm : {0.0, 0.05}) {
      const Job job{.model = model, .clip_norm = clip_norm};
      expect_same(trained(GetParam(), job), trained(GetParam(), off(job)), GetParam().name);
    }
  }
}

TEST_P(Zero, HasThemWithEveryOptimizer) {
  for (const std::string optimizer : {"sgd", "momentum", "adam", "rmsprop", "adagrad"}) {
    const Job job{.optimizer = optimizer};
    expect_same(trained(GetParam(), job, 5), trained(GetParam(), off(job), 5), GetParam().name);
  }
}

// All weights of the model divide: a rank has a shard of every state, and no byte more of any.
TEST_P(Zero, HoldsAShardOfTheOptimizersState) {
  auto plan = plan_of(GetParam(), {}), replicated = plan_of(GetParam(), off({}));
  ASSERT_TRUE(plan.ok() && replicated.ok()) << plan.status().to_string();
  for (int t = 0; t < (*plan)->virtual_devices(); ++t) {
    EXPECT_GT(optimizer_bytes(**plan, t), 0);
    EXPECT_EQ(optimizer_bytes(**plan, t) * GetParam().shards, optimizer_bytes(**replicated, t))
        << "virtual device " << t;
    for (const StateSlot& slot : (*plan)->state_of(t).slots()) {
      if (slot.kind != ValueKind::parameter) continue;
      EXPECT_EQ(slot.local, (*replicated)->state_of(t).find(slot.name)->local) << slot.name;
    }
  }
  EXPECT_FALSE((*plan)->text(EntryKind::train, "plan")->empty());
}

TEST_P(Zero, LearnsTheSameBitsFarAway) {
  const std::string name = cat("far_zero_", GetParam().name);
  add_backend(far_backend(name, 5));
  expect_same(trained(GetParam(), {.device = name}, 3), trained(GetParam(), off({}), 3), GetParam().name);
}

// What was saved in shards goes on replicated and the other way round.
TEST_P(Zero, SavesAndLoadsUnderAnotherLayout) {
  const TemporaryFolder temporary;
  const auto step = [](Session& session, int s) {
    StepMetrics metrics;
    const Status status = session.step(skip_mlp_batch(s), metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return metrics.loss;
  };
  const std::pair<Layout, Job> shared{GetParam(), {}}, apart{GetParam(), off({})}, alone{{}, off({})};
  for (const auto& [from, to] : {std::pair(shared, apart), std::pair(apart, shared), std::pair(shared, alone)}) {
    const std::string folder =
        temporary / cat(&from == &apart ? "apart" : "shared", from.second.level, to.second.level);
    auto session = Session::create(test_host(2), *plan_of(from.first, from.second), {.seed = 7});
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    for (int s = 0; s < 3; ++s) step(**session, s);
    ASSERT_TRUE(save_session(**session, folder).ok());
    auto other = Session::create(test_host(2), *plan_of(to.first, to.second), {.seed = 1});
    const Status loaded = load_session(**other, folder);
    ASSERT_TRUE(loaded.ok()) << loaded.to_string();
    const bool same_bits = from.first.scopes.find("split") == std::string::npos || to.first.name == from.first.name;
    for (const StateSlot& slot : (*other)->plan().state().slots())
      EXPECT_TRUE(identical(*(*other)->state().get(slot.name), *(*session)->state().get(slot.name))) << slot.name;
    for (int s = 3; s < 6 && same_bits; ++s) EXPECT_EQ(step(**session, s), step(**other, s));
  }
}

INSTANTIATE_TEST_SUITE_P(, Zero,
                         testing::Values(Layout{"two", 2}, Layout{"four", 4, 1, "", 4}, Layout{"in_turns", 2, 4},
                                         Layout{"in_stages", 4, 2, std::string(in_stages)},
                                         Layout{"late_weights", 4, 2, std::string(late_weights)},
                                         Layout{"beside_split", 4, 2, R"("default": {"split": 2})"}),
                         [](const auto& info) { return info.param.name; });

// Weights are in memory once, though copies make them in shards, and gradients take no more than what they are summed
// from: every size below divides into shards that begin on cache lines.
TEST(ZeroInPlace, NeedsNoMemoryBesideTheWeights) {
  constexpr std::string_view large = R"(graph mlp(x: f32[8,64] batch 0) {
  w1: f32[64,64] = param
  w2: f32[64,64] = param
  forward:
  h: f32[8,64] = matmul(x, w1)
  a: f32[8,64] = relu(h)
  y: f32[8,64] = matmul(a, w2)
  output y = y
}
)";
  const auto arena = [](const Result<std::shared_ptr<const CompiledPlan>>& made) {
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return (*made)->entry(EntryKind::train)->programs.front().memories[0].arena_bytes;
  };
  const Job job{.model = std::string(large)};
  auto plan = plan_of({"two", 2}, job);
  EXPECT_LE(arena(plan), arena(plan_of({"two", 2}, off(job))));
  const Program& program = (*plan)->entry(EntryKind::train)->programs.front();
  const auto copies = [](const Instruction& in) {
    return in.transfer && (in.transfer->name == "copy" || in.transfer->name == "slice");
  };
  EXPECT_TRUE(std::ranges::none_of(program.instructions, copies));
  const std::string text = print_program(program);
  auto again = parse_program(text, (*plan)->device()->kernels());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(print_program(*again), text);
}

// The gradient of a large weight, of a small batch: each copy gets all samples and computes its shard, and no sum of
// the weight's size is made. Not over micro-batches first, which would sum in another order, and not for small weights.
TEST(ZeroBySamples, HasTheBitsOfSumsThatAreScattered) {
  constexpr std::string_view wide = R"(graph mlp(x: f32[8,12] batch 0) {
  w1: f32[12,256] = param
  w2: f32[256,256] = param
  b2: f32[256] = param
  w3: f32[256,4] = param
  forward:
  h: f32[8,256] = matmul(x, w1)
  a: f32[8,256] = relu(h)
  g: f32[8,256] = matmul(a, w2)
  gb: f32[8,256] = add(g, b2)
  r: f32[8,256] = relu(gb)
  y: f32[8,4] = matmul(r, w3)
  output y = y
}
)";
  add_backend(far_backend("far_by_samples", 5));
  const auto exchanges = [](const CompiledPlan& plan) {
    return std::ranges::count_if(
        plan.entry(EntryKind::train)->programs.front().instructions,
        [](const Instruction& in) { return in.transfer && in.transfer->name == "all_to_all"; });
  };
  for (const double clip_norm : {0.0, 0.05}) {
    const Job job{.model = std::string(wide), .clip_norm = clip_norm};
    for (const Layout& layout : {Layout{"two", 2}, Layout{"four", 4}, Layout{"in_turns", 2, 4},
                                 Layout{"beside_split", 4, 1, R"("default": {"split": 2})"}}) {
      auto plan = plan_of(layout, job);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      if (clip_norm == 0) {
        EXPECT_EQ(exchanges(**plan), layout.micro_batches == 1 ? 1 : 0) << layout.name;
      }
      expect_same(trained(layout, job, 5), trained(layout, off(job), 5), layout.name);
    }
    Job far = job;
    far.device = "far_by_samples";
    expect_same(trained({"two", 2}, far, 3), trained({"one", 1}, off(job), 3), "far");
  }
}

// Stages of 1 and of 2 copies: those of one rank have nothing to share.
TEST(ZeroOfDegrees, HasTheBitsOfCopiesThatUpdateEverything) {
  const Layout layout{"degrees", 6, 2, std::string(degrees)};
  expect_same(trained(layout, {}), trained(layout, off({})), layout.name);
  auto plan = plan_of(layout, {}), replicated = plan_of(layout, off({}));
  ASSERT_TRUE(plan.ok() && replicated.ok()) << plan.status().to_string();
  EXPECT_EQ(optimizer_bytes(**plan, 0) * 2, optimizer_bytes(**replicated, 0));
  EXPECT_EQ(optimizer_bytes(**plan, 1) * 4, optimizer_bytes(**replicated, 1));
}

// Each micro-batch is independent, and the gradient is the mean of theirs.
TEST(ZeroOfMicroBatches, HasTheBitsOfCopiesThatUpdateEverything) {
  const Layout layout{"independent", 2, 4, R"("batch.semantics": "per_micro_batch")"};
  const auto batch = [](int step) { return skip_mlp_samples(step, 32); };
  expect_same(train(plan_of(layout, {}), "v0", 20, batch), train(plan_of(layout, off({})), "off", 20, batch),
              "independent");
}

// b3 has one element: every copy updates it.
TEST(ZeroOfReplicated, SaysWhatDoesNotDivide) {
  auto plan = plan_of({"two", 2}, {.model = std::string(tied_mlp)});
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  for (const StateSlot& slot : (*plan)->state_of(0).slots()) {
    if (slot.kind != ValueKind::state) continue;
    EXPECT_EQ(slot.local != slot.type, !slot.name.starts_with("b3.")) << slot.name;
  }
  const auto notes = (*plan)->entry(EntryKind::train)->plan.notes;
  const auto says = [](const std::string& note) {
    return note.find("4 of 5 parameters are updated in 2 shards") != std::string::npos &&
           note.find("b3") != std::string::npos;
  };
  EXPECT_TRUE(std::ranges::any_of(notes, says));
}

// The shard of one rank holds it, and all ranks leave the step out.
TEST(ZeroOfNumbers, FindsOneThatIsNotFiniteInAnyShard) {
  const auto refused = [](const Job& job) {
    auto session = Session::create(test_host(2), *plan_of({"two", 2}, job), {.seed = 7});
    Tensor weight = *(*session)->state().get("w2");
    weight.set(13 * 16 + 3, 3e38);
    EXPECT_TRUE((*session)->state().set("w2", weight).ok());
    StepMetrics metrics;
    std::vector<Tensor> batch = skip_mlp_batch(0);
    for (int64_t i = 0; i < batch[0].elements(); ++i) batch[0].set(i, batch[0].get(i) * 1e3);
    EXPECT_TRUE((*session)->step(batch, metrics).ok());
    EXPECT_EQ(metrics.skipped.code(), Code::not_finite);
    EXPECT_TRUE(identical(*(*session)->state().get("w2"), weight));
    return metrics.skipped.message();
  };
  EXPECT_EQ(refused({}), refused(off({})));
}

// By itself it shares out what is sure to save time: large weights whose shards lie one behind the other.
TEST(ZeroByItself, CutsLargeWeightsAlone) {
  const auto shards = [](const Job& job, int64_t micro_batches = 1) {
    auto plan = plan_of({"two", 2, micro_batches}, job);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    std::vector<std::string> names;
    for (const StateSlot& slot : (*plan)->state_of(0).slots()) {
      if (slot.kind == ValueKind::state && slot.local != slot.type) names.push_back(slot.name.substr(0, 2));
    }
    return names;
  };
  const Job large{.model = std::string(large_mlp), .optimizer = "momentum", .level = "auto"};
  EXPECT_EQ(shards(large), std::vector<std::string>{"w1"});
  EXPECT_EQ(shards(large, 2), std::vector<std::string>{"w1"});
  EXPECT_EQ(shards(off(large)), std::vector<std::string>());
  EXPECT_EQ(shards({.level = "auto"}), std::vector<std::string>());
  // All copies have the full gradient, for its norm.
  Job clipped = large;
  clipped.clip_norm = 0.05;
  EXPECT_EQ(shards(clipped), std::vector<std::string>());

  auto plan = plan_of({"two", 2}, large);
  const auto notes = (*plan)->entry(EntryKind::train)->plan.notes;
  const auto says = [](const std::string& note) {
    return note.find("zero.level auto: 1 of 2 large parameters are updated in 2 shards") != std::string::npos &&
           note.find("w2") != std::string::npos;
  };
  EXPECT_TRUE(std::ranges::any_of(notes, says));
}

TEST_P(Zero, HasTheSameBitsByItself) {
  const Job large{.model = std::string(large_mlp), .level = "auto"};
  expect_same(trained(GetParam(), large, 5), trained(GetParam(), off(large), 5), GetParam().name);
}

}  // namespace
}  // namespace epl::zero_test
