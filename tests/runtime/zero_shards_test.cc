// Gradients in shards (`zero.level` = v1), and weights too (v2): the bits of copies that have all in full, and less
// memory at each level, known to the byte before the first step.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/program/local_graph.h"
#include "core/program/transfer.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/skip_mlp.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"
#include "tests/thirds.h"

namespace epl::zero_shards_test {
namespace {

// A weight that is used twice, dimensions that two and four do not divide, and a weight of one element.
constexpr std::string_view uneven_mlp = R"(graph mlp(x: f32[8,12] batch 0) {
  w1: f32[12,15] = param
  b1: f32[15] = param
  w2: f32[15,15] = param
  w3: f32[15,4] = param
  b3: f32[1] = param
  forward:
  h: f32[8,15] = matmul(x, w1)
  hb: f32[8,15] = add(h, b1)
  a: f32[8,15] = relu(hb)
  g: f32[8,15] = matmul(a, w2)
  r: f32[8,15] = relu(g)
  twice: f32[8,15] = matmul(r, w2)
  y: f32[8,4] = matmul(twice, w3)
  yb: f32[8,4] = add(y, b3)
  output y = yb
}
)";

// Six weights of 64 rows: shards begin on cache lines.
std::string deep_mlp() {
  std::string leaves, nodes, from = "x";
  for (int i = 0; i < 6; ++i) {
    leaves += cat("  w", i, ": f32[64,64] = param\n");
    nodes += cat("  h", i, ": f32[8,64] = matmul(", from, ", w", i, ")\n  a", i, ": f32[8,64] = tanh(h", i, ")\n");
    from = cat("a", i);
  }
  return cat("graph mlp(x: f32[8,64] batch 0) {\n", leaves, "  head: f32[64,4] = param\n  forward:\n", nodes,
             "  y: f32[8,4] = matmul(", from, ", head)\n  output y = y\n}\n");
}

struct Layout {
  std::string name;
  int64_t ranks = 1, micro_batches = 1;
  std::string keys = {};  // of the strategy
  int samples = 8;
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

struct Job {
  std::string model{skip_mlp}, level = "v1", optimizer = "adamw", device = "cpu";
  double clip_norm = 0.05;
  std::vector<std::string> train_only = {};  // none: all
  std::vector<AdapterSpec> adapters = {};
};

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Layout& layout, const Job& job) {
  const std::string keys = cat("\"pipeline.num_micro_batch\": ", layout.micro_batches, ", \"zero.level\": \"",
                               job.level, "\"", layout.keys.empty() ? "" : ", ", layout.keys);
  auto options = layout_options(GraphModel::parse(job.model), layout.ranks, at_level("data", keys));
  if (options.ok()) {
    options->device = job.device;
    options->train.optimizer = job.optimizer;
    if (job.optimizer != "adamw") options->train.optimizer_options = {{"lr", 0.01}};
    options->train.clip_norm = job.clip_norm;
    options->train.train_only = job.train_only;
    options->adapters.specs = job.adapters;
  }
  return layout_plan(options);
}

Trained trained(const Layout& layout, const Job& job, int steps = 6) {
  const auto samples = [&](int step) { return skip_mlp_samples(step, layout.samples); };
  return train(plan_of(layout, job), cat(layout.name, ", ", job.level), steps, samples);
}
Job at(Job job, const std::string& level) {
  job.level = level;
  return job;
}
// Layout and level.
class Shards : public ::testing::TestWithParam<std::tuple<Layout, std::string>> {
 protected:
  const Layout& layout() const { return std::get<0>(GetParam()); }
  Job job(Job job = {}) const { return at(std::move(job), std::get<1>(GetParam())); }
  void expect_same_as_full(const Job& one, int steps = 6) const {
    expect_same(trained(layout(), one, steps), trained(layout(), at(one, "off"), steps), layout().name);
  }
};

TEST_P(Shards, HaveTheBitsOfFullCopies) {
  EPL_ONE_OF_THREE();
  for (const std::string_view model : {skip_mlp, dropout_mlp, uneven_mlp}) {
    for (const double clip_norm : {0.0, 0.05})
      expect_same_as_full(job({.model = std::string(model), .clip_norm = clip_norm}));
  }
}

TEST_P(Shards, HaveThemWithEveryOptimizer) {
  EPL_ONE_OF_THREE();
  for (const std::string optimizer : {"sgd", "momentum", "adam", "rmsprop", "adagrad"})
    expect_same_as_full(job({.optimizer = optimizer}), 4);
}

TEST_P(Shards, HaveThemWithFrozenWeights) {
  EPL_ONE_OF_THREE();
  expect_same_as_full(job({.train_only = {"w2", "b*"}}));
}

TEST_P(Shards, HaveThemFarAway) {
  EPL_ONE_OF_THREE();
  const std::string name = cat("far_shards_", layout().name, "_", std::get<1>(GetParam()));
  add_backend(far_backend(name, 5));
  Job far = job({.model = std::string(uneven_mlp)});
  far.device = name;
  expect_same(trained(layout(), far, 3), trained(layout(), job({.model = std::string(uneven_mlp), .level = "off"}), 3),
              layout().name);
}

// The plan can be read again, and is the same.
TEST_P(Shards, AreInThePlan) {
  auto plan = plan_of(layout(), job({.model = std::string(uneven_mlp)}));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const std::string text = *(*plan)->text(EntryKind::train, "plan");
  const auto again = parse_plan(text, (*plan)->entry(EntryKind::train)->plan.graph);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(print_plan(*again), text);
}

std::vector<Layout> layouts() {
  const std::string one = R"("replicate": 1)", two = R"("replicate": 2)", schedule = R"("pipeline.strategy": ")";
  return {{"two", 2},
          {"two_in_four", 2, 4},
          {"four_in_two", 4, 2},
          {"gpipe", 4, 4, cat(schedule, R"(GPipe", )", two_stages(one, one))},
          {"one_forward_one_backward", 4, 4, cat(schedule, R"(1F1B", )", two_stages(one, one))},
          {"late_weights", 4, 4, cat(schedule, R"(ZB-H1", )", two_stages(one, one))},
          {"there_and_back", 4, 4, cat(schedule, R"(ZB-V", "pipeline.num_stages": 2)")},
          {"one_to_two", 6, 2, two_stages(one, two)},
          {"beside_split", 4, 2, R"("default": {"split": 2})"},
          {"colocated", 4, 2,
           R"("cluster.colocate_split_and_replicate": true, "scopes": [{"name": "s", "split": 2, "match": ["g"]}])"},
          {"independent", 2, 4, R"("batch.semantics": "per_micro_batch")", 32}};
}

INSTANTIATE_TEST_SUITE_P(Layouts, Shards,
                         ::testing::Combine(::testing::ValuesIn(layouts()),
                                            ::testing::Values(std::string("v1"), std::string("v2"))),
                         [](const auto& info) {
                           return cat(std::get<0>(info.param).name, "_", std::get<1>(info.param));
                         });

// A checkpoint has full tensors: it goes on under another level, with the same bits.
TEST(ShardsOfCheckpoints, GoOnUnderAnotherLevel) {
  const TemporaryFolder temporary;
  const Layout layout{"two_in_two", 2, 2};
  const auto session_of = [&](const std::string& level, uint64_t seed) {
    auto session = Session::create(test_host(2), *plan_of(layout, {.model = std::string(uneven_mlp), .level = level}),
                                   {.seed = seed});
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    return std::move(*session);
  };
  const auto step = [](Session& session, int s) {
    StepMetrics metrics;
    const Status status = session.step(skip_mlp_batch(s), metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return metrics.loss;
  };
  for (const auto& [from, to] : {std::pair("v2", "off"), std::pair("off", "v2"), std::pair("v1", "v2")}) {
    const auto one = session_of(from, 7), other = session_of(to, 1);
    for (int s = 0; s < 3; ++s) step(*one, s);
    const std::string folder = temporary / cat(from, to);
    ASSERT_TRUE(save_session(*one, folder).ok());
    const Status loaded = load_session(*other, folder);
    ASSERT_TRUE(loaded.ok()) << loaded.to_string();
    for (int s = 3; s < 6; ++s) EXPECT_EQ(step(*one, s), step(*other, s)) << from << " to " << to;
    for (const StateSlot& slot : one->plan().state().slots())
      EXPECT_TRUE(identical(*one->state().get(slot.name), *other->state().get(slot.name))) << slot.name;
  }
}

// Weights that are merged with what is trained beside them, under every level.
TEST(ShardsOfAdapters, HaveTheBitsOfFullCopies) {
  Job job{.adapters = {{.pattern = "w*", .rank = 2}}};
  for (const Layout& layout : {Layout{"two", 2}, Layout{"two_in_four", 2, 4}, Layout{"four_in_two", 4, 2}}) {
    for (const std::string level : {"v1", "v2"})
      expect_same(trained(layout, at(job, level)), trained(layout, at(job, "off")), layout.name);
  }
}

int64_t state_bytes(const CompiledPlan& plan, ValueKind kind) {
  int64_t bytes = 0;
  for (const StateSlot& slot : plan.state_of(0).slots()) bytes += slot.kind == kind ? slot.local.bytes() : 0;
  return bytes;
}

// Each level has a rank's shard of more than the level before.
TEST(ShardsOfMemory, TakeLessAtEachLevel) {
  for (const double clip_norm : {0.0, 0.05}) {
    const Layout layout{"four", 4, 2};
    std::vector<std::shared_ptr<const CompiledPlan>> plans;
    for (const std::string level : {"off", "v0", "v1", "v2"})
      plans.push_back(*plan_of(layout, {.model = deep_mlp(), .level = level, .clip_norm = clip_norm}));
    for (size_t i = 1; i < plans.size(); ++i)
      EXPECT_LT(PlanMemory(*plans[i]).peak(), PlanMemory(*plans[i - 1]).peak()) << i << ", norm " << clip_norm;
    EXPECT_EQ(state_bytes(*plans[2], ValueKind::parameter), state_bytes(*plans[0], ValueKind::parameter));
    EXPECT_EQ(state_bytes(*plans[3], ValueKind::parameter) * 4, state_bytes(*plans[0], ValueKind::parameter));
    EXPECT_EQ(state_bytes(*plans[3], ValueKind::state) * 4, state_bytes(*plans[0], ValueKind::state));
    // Beside what it needs with full weights, an entry has one gathered weight of 64 x 64 at a time.
    for (const EntryKind kind : {EntryKind::predict, EntryKind::evaluate}) {
      const auto arena = [&](int level) { return plans[level]->entry(kind)->programs[0].memories[0].arena_bytes; };
      EXPECT_LE(arena(3), arena(2) + int64_t{64 * 64 * 4});
    }
  }
}

// What each micro-batch adds to gradients, in elements; sums of one number, such as the loss, aside.
int64_t accumulated(const CompiledPlan& plan) {
  int64_t elements = 0;
  for (const Node& node : plan.entry(EntryKind::train)->locals[0].graph.nodes()) {
    if (node.op->name != "accumulate") continue;
    const int64_t own = plan.entry(EntryKind::train)->locals[0].graph.type(node.outputs[0]).elements();
    elements += own > 1 ? own : 0;
  }
  return elements;
}

// Gradients stay in shards where they are clipped too: nobody asks for the order of the batch.
TEST(ShardsOfGradients, AreWhatMicroBatchesAddUp) {
  for (const double clip_norm : {0.0, 1.0}) {
    const auto of = [&](const std::string& level) {
      auto plan = plan_of({"two", 2, 4}, {.level = level, .clip_norm = clip_norm});
      EXPECT_TRUE(plan.ok()) << plan.status().to_string();
      return accumulated(**plan);
    };
    EXPECT_GT(of("off"), 0);
    EXPECT_EQ(of("v0"), of("off"));
    EXPECT_EQ(of("v1") * 2, of("off"));
    EXPECT_EQ(of("v2") * 2, of("off"));
  }
}

// Each is scattered as soon as its gradients are there, so that the others' memory is not needed beside it.
TEST(ShardsOfGradients, AreReducedInBuckets) {
  const auto of = [&](int64_t buckets) {
    return *plan_of({"two", 2, 2, cat("\"communication.max_splits\": ", buckets)},
                    {.model = deep_mlp(), .clip_norm = 0});
  };
  const auto scatters = [](const CompiledPlan& plan) {
    return std::ranges::count_if(
        plan.entry(EntryKind::train)->programs.front().instructions,
        [](const Instruction& in) { return in.transfer && in.transfer->name == "reduce_scatter"; });
  };
  const auto one = of(1), three = of(3), all = of(100);
  EXPECT_EQ(scatters(*one), 1);
  EXPECT_EQ(scatters(*three), 3);
  EXPECT_EQ(scatters(*all), 7);
  EXPECT_LT(PlanMemory(*three).peak(), PlanMemory(*one).peak());
  EXPECT_LE(PlanMemory(*all).peak(), PlanMemory(*three).peak());
  const Job job{.model = deep_mlp()};
  const auto batch = [](int step) { return skip_mlp_samples(step, 8, 64); };
  expect_same(train(Result(three), "three", 3, batch), train(Result(one), "one", 3, batch), "buckets");
}

// A gather, and the first instruction that reads it.
std::vector<std::pair<int, int>> gathers(const Program& program) {
  std::vector<std::pair<int, int>> found;
  const auto& all = program.instructions;
  for (int p = 0; p < std::ssize(all); ++p) {
    if (!all[p].transfer || all[p].transfer->name != "all_gather") continue;
    int reader = p + 1;
    while (reader < std::ssize(all) &&
           std::ranges::find(all[reader].inputs, all[p].outputs[0]) == all[reader].inputs.end())
      ++reader;
    found.emplace_back(p, reader);
  }
  return found;
}

// Where groups of ranks have streams of their own, a weight is on its way while the layer before computes.
TEST(ShardsOfWeights, AreGatheredOneLayerAhead) {
  const Job job{.model = deep_mlp(), .level = "v2"};
  const Layout layout{"two", 2, 2};
  const auto ahead = [&](const std::string& device) {
    Job on = job;
    on.device = device;
    const auto plan = *plan_of(layout, on);
    int count = 0;
    for (const EntryKind kind : {EntryKind::train, EntryKind::predict}) {
      const std::vector<std::pair<int, int>> found = gathers(plan->entry(kind)->programs.front());
      EXPECT_GE(found.size(), 6U);
      const int before = count;
      for (size_t i = 1; i < found.size(); ++i) count += found[i].first < found[i - 1].second;
      EXPECT_EQ(plan->entry(kind)->programs.front().gathers_ahead, count > before) << device;
    }
    return count;
  };
  add_backend(far_backend("far_prefetch", 5));
  add_backend(far_backend("far_one_stream", 5, 1));
  EXPECT_GE(ahead("far_prefetch"), 15);
  EXPECT_EQ(ahead("far_one_stream"), 0);
  EXPECT_EQ(ahead("cpu"), 0);
  Job far = job;
  far.device = "far_prefetch";
  const auto batch = [](int step) { return skip_mlp_samples(step, 8, 64); };
  expect_same(train(plan_of(layout, far), "far", 3, batch), train(plan_of(layout, at(job, "off")), "off", 3, batch),
              "far");
}

// A dimension that does not divide is cut unevenly, if its shards are smaller than all of it.
TEST(ShardsOfUneven, AreOfAllThatHasTwoElements) {
  auto plan = plan_of({"two", 2}, {.model = std::string(uneven_mlp), .level = "v2"});
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  for (const StateSlot& slot : (*plan)->state_of(0).slots())
    EXPECT_EQ(slot.local != slot.type, !slot.name.starts_with("b3")) << slot.name;
  EXPECT_EQ((*plan)->state_of(0).find("w2")->local.shape, (Shape{8, 15}));
}

// What entries without an update cut, by the lines of their nodes.
std::string cuts_of(const CompiledPlan& plan) {
  std::string out;
  const std::string text = *plan.text(EntryKind::predict, "plan");
  for (size_t at = text.find("\nnode "); at != std::string::npos; at = text.find("\nnode ", at + 1))
    out += text.substr(at, text.find('\n', at + 1) - at);
  return out;
}

// The second convolution's weight is stored in shards over the split, as its gradient has them, but each rank of the
// split does all of that convolution. In other entries too: else a sum would have other bits there.
TEST(ShardsBesideSplits, SayNothingOfWhereNodesAreCut) {
  constexpr std::string_view model = R"(graph conv(x: f32[4,2,6,6] batch 0) {
  w1: f32[2,2,3,3] = param
  c1: f32[2] = param
  w2: f32[2,2,1,1] = param
  c2: f32[2] = param
  head: f32[72,4] = param
  forward:
  h: f32[4,2,6,6] = conv(x, w1, c1) {pads=[1,1,1,1]}
  a: f32[4,2,6,6] = gelu(h)
  g: f32[4,2,6,6] = conv(a, w2, c2)
  s: f32[4,2,6,6] = add(x, g)
  f: f32[4,72] = reshape(s) {shape=[4,72]}
  y: f32[4,4] = matmul(f, head)
  output y = y
}
)";
  const Layout layout{"split", 2, 1, R"("default": {"split": 2})"};
  const auto of = [&](const std::string& level) {
    return *plan_of(layout, {.model = std::string(model), .level = level, .clip_norm = 0});
  };
  const auto shards = of("v2"), full = of("off");
  EXPECT_EQ(shards->state_of(0).find("w2")->local.shape, (Shape{2, 1, 1, 1}));
  EXPECT_EQ(full->state_of(0).find("w2")->local.shape, (Shape{2, 2, 1, 1}));
  EXPECT_EQ(cuts_of(*shards), cuts_of(*full));
  const auto images = [](int step) {
    std::vector<Tensor> flat = skip_mlp_samples(step, 4, 72);
    Tensor x(TensorType{DType::f32, {4, 2, 6, 6}});
    for (int64_t i = 0; i < x.elements(); ++i) x.set(i, flat[0].get(i));
    return std::vector<Tensor>{x, flat[1]};
  };
  expect_same(train(Result(shards), "v2", 3, images), train(Result(full), "off", 3, images), "split");
}

// What two keys say against each other is an error that names both.
TEST(ShardsOfKeys, RefuseRanksFirst) {
  for (const std::string level : {"v1", "v2"}) {
    const Status status = plan_of({"two", 2, 2, R"("batch.order": "ranks")"}, {.level = level}).status();
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    for (const std::string& part : {cat(R"("zero.level" = ")", level), std::string(R"("batch.order" = "ranks")")})
      EXPECT_NE(status.message().find(part), std::string::npos) << status.to_string();
    EXPECT_TRUE(plan_of({"two", 2, 2, R"("batch.order": "micro_batches")"}, {.level = level}).ok());
  }
}

}  // namespace
}  // namespace epl::zero_shards_test
