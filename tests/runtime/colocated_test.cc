// Scopes that share their ranks: a body that each rank has all of and whose batch they share out, and a large
// classifier of which each has a shard, over the same ranks. What goes from one to the other is exchanged by all ranks.
// At level `layout` the bits are those of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/backend/far_device.h"
#include "tests/runtime/trained.h"

namespace epl::colocated_test {
namespace {

// Convolutions as of a ResNet, with a draw for each element, and 32 classes.
constexpr std::string_view network = R"(graph network(x: f32[8,3,6,6] batch 0) {
  stem.w: f32[8,3,3,3] = param
  stem.b: f32[8] = param
  block.w: f32[8,8,3,3] = param
  head.w: f32[8,32] = param
  head.b: f32[32] = param
  forward:
  stem: f32[8,8,6,6] = conv(x, stem.w, stem.b) {pads=[1,1,1,1]}
  a: f32[8,8,6,6] = relu(stem)
  block: f32[8,8,6,6] = conv(a, block.w) {pads=[1,1,1,1]}
  skip: f32[8,8,6,6] = add(block, a)
  r: f32[8,8,6,6] = relu(skip)
  p: f32[8,8,1,1] = avg_pool(r) {kernel=[6,6]}
  flat: f32[8,8] = reshape(p) {shape=[8,8]}
  d: f32[8,8], m: bool[8,8] = dropout(flat) {ratio=0.25}
  head: f32[8,32] = linear(d, head.w, head.b)
  output head = head
}
)";

struct Layout {
  std::string name;
  int64_t ranks = 1, micro_batches = 1;
  std::string scopes;  // of the strategy
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Layout& layout, const std::string& level,
                                                    const std::string& device = "cpu") {
  PlanOptions options;
  options.model = GraphModel::parse(network);
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "adamw";
  options.train.optimizer_options = {{"lr", 0.01}};
  options.train.clip_norm = 1;
  options.ranks = layout.ranks;
  options.device = device;
  const std::string text = cat("{\"pipeline.num_micro_batch\": ", layout.micro_batches, ", \"reproducible.level\": \"",
                               level, "\"", layout.scopes.empty() ? "" : ", ", layout.scopes, "}");
  EPL_ASSIGN(options.strategy, parse_strategy(text));
  return CompiledPlan::create(test_host(2), options);
}

std::vector<Tensor> batch(int step) {
  Tensor x(TensorType{DType::f32, {8, 3, 6, 6}}), target(TensorType{DType::i64, {8}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
  for (int i = 0; i < 8; ++i) target.set_int(i, i == 5 ? -100 : (3 * i + step) % 32);
  return {x, target};
}

Trained train(const Layout& layout, const std::string& level, const std::string& device = "cpu") {
  return epl::train(plan_of(layout, level, device), layout.name, 20, batch);
}

const Trained& one_rank(const std::string& level) {
  static std::map<std::string, Trained> known;
  if (!known.contains(level)) known[level] = train({.name = "one_rank"}, level);
  return known[level];
}

// The body is what comes before the classifier; the loss is where what no scope matches is.
std::string scopes(std::string_view body, std::string_view head) {
  return cat(
      R"("cluster.colocate_split_and_replicate": true, "scopes": [{"name": "body", "match": ["stem", "a", "block",
                "skip", "r", "p", "flat", "d"], )",
      body, R"(}, {"name": "head", "match": "head", )", head, "}]");
}

std::vector<Layout> layouts() {
  const std::string one = R"("replicate": 1)", two = R"("split": 2)", four = R"("split": 4)";
  std::vector<Layout> all;
  for (const int64_t micro_batches : {1, 2}) {
    const auto add = [&](const std::string& name, int64_t ranks, const std::string& text) {
      all.push_back({cat(name, "_in_", micro_batches), ranks, micro_batches, text});
    };
    add("2_ranks", 2, scopes(one, two));
    add("2x2_ranks", 4, scopes(one, two));
    add("4_ranks", 4, scopes(one, four));
    add("split_body", 2, scopes(two, one));
    add("both_split_by_other_degrees", 4, scopes(two, four));
    add("one_scope_beside_the_default", 4, R"("scopes": [{"name": "head", "match": "head", "split": 2}])");
    add("inside_the_default", 4,
        R"("default": {"replicate": 4, "scopes": [{"name": "head", "match": "head", "split": 4}]})");
    add("inside_a_stage", 6,
        R"("pipeline.strategy": "1F1B", "scopes": [{"name": "first", "match": ["stem", "a"], "replicate": 1},
           {"name": "second", "match": "*", "replicate": 2,
            "scopes": [{"name": "head", "match": "head", "split": 2}]}])");
  }
  return all;
}

class Colocated : public ::testing::TestWithParam<Layout> {};

TEST_P(Colocated, HaveTheBitsOfOneRankAtLevelLayout) {
  expect_same(train(GetParam(), "layout"), one_rank("layout"), GetParam().name);
}

TEST_P(Colocated, LearnWhatOneRankLearns) {
  expect_near(train(GetParam(), "data"), one_rank("data"), GetParam().name, 1e-5, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Colocated, ::testing::ValuesIn(layouts()),
                         [](const auto& info) { return info.param.name; });

TEST(Colocated, RunOnAFarDevice) {
  add_backend(far_backend("far_colocated", 5));
  for (const Layout& layout : {layouts()[1], layouts()[7]}) {
    const Trained found = train(layout, "layout", "far_colocated");
    EXPECT_EQ(found.losses, one_rank("layout").losses) << layout.name;
  }
}

// Each rank has the features of its samples and wants those of all, has the scores of its classes for all samples and
// wants all of those of its samples: that goes by an exchange, and so do the scores' gradients.
TEST(Colocated, ExchangeWhatGoesFromOneToTheOther) {
  auto plan = plan_of(layouts()[0], "data");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const Entry& entry = *(*plan)->entry(EntryKind::train);
  ASSERT_EQ(entry.locals.size(), 1u) << "ranks that are shared are one virtual device";
  std::set<std::string> exchanged;
  for (const Node& node : entry.locals[0].graph.nodes()) {
    if (node.op->name == "all_to_all") exchanged.insert(node.name);
  }
  EXPECT_TRUE(exchanged.contains("head.exchanged")) << "the scores";
  EXPECT_TRUE(exchanged.contains("loss.gradient.exchanged")) << "and their gradient";
  const auto& slots = (*plan)->state().slots();
  const auto local = [&](std::string_view name) {
    return std::ranges::find(slots, name, &StateSlot::name)->local.shape;
  };
  EXPECT_EQ(local("head.w"), (Shape{8, 16}));
  EXPECT_EQ(local("block.w"), (Shape{8, 8, 3, 3}));
  const Plan read = *parse_plan(print_plan(entry.plan), entry.plan.graph);
  EXPECT_EQ(print_plan(read), print_plan(entry.plan));
}

}  // namespace
}  // namespace epl::colocated_test
