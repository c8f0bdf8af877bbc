// Weights in shards over ranks, alone and beside data parallelism, micro-batches and stages: the answer of one rank,
// memory known before the first step, and state that is read, written and saved as if it were not cut.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "core/program/shards.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/skip_mlp.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"

namespace epl::split_test {
namespace {

constexpr std::string_view stages = R"("pipeline.strategy": "1F1B", "scopes": [
  {"name": "first", "split": 2, "match": ["h*", "a"]}, {"name": "second", "split": 2, "match": ["*"]}])";

struct Layout {
  std::string name;
  int64_t ranks = 1, micro_batches = 1;
  std::string scopes;  // of the strategy
  std::string level = "data";
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Layout& layout, const std::string& device = "cpu",
                                                    std::string_view model = skip_mlp) {
  const std::string keys =
      cat("\"pipeline.num_micro_batch\": ", layout.micro_batches, layout.scopes.empty() ? "" : ", ", layout.scopes);
  auto options = layout_options(GraphModel::parse(model), layout.ranks, at_level(layout.level, keys));
  if (options.ok()) options->device = device;
  return layout_plan(options);
}

using State = std::map<std::string, Tensor>;

State state_of(Session& session) {
  State state;
  for (const StateSlot& slot : session.plan().state().slots())
    state.emplace(slot.name, *session.state().get(slot.name));
  return state;
}

// The losses of some steps.
std::vector<double> train(Session& session, int first, int steps) {
  std::vector<double> losses;
  for (int s = first; s < first + steps; ++s) {
    StepMetrics metrics;
    const Status status = session.step(skip_mlp_batch(s), metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    losses.push_back(metrics.loss);
  }
  return losses;
}

Trained trained(Layout layout, const std::string& level) {
  layout.level = level;
  return train(plan_of(layout), layout.name, 4, skip_mlp_batch);
}
bool same_bits(const State& found, const State& wanted) {
  return std::ranges::all_of(wanted, [&](const auto& slot) { return identical(found.at(slot.first), slot.second); });
}

class Split : public ::testing::TestWithParam<Layout> {};

TEST_P(Split, LearnsWhatOneRankLearns) {
  expect_near(trained(GetParam(), "data"), trained({}, "data"), GetParam().name, 1e-6, 1e-5, 1e-5);
}

// At level `data` the last bits are others, so that equal ones are no accident.
TEST_P(Split, HasTheBitsOfOneRankAtLevelLayout) {
  expect_same(trained(GetParam(), "layout"), trained({}, "layout"), GetParam().name);
  EXPECT_FALSE(same_bits(trained(GetParam(), "data").state, trained({}, "data").state));
}

TEST_P(Split, HoldsShardsOfTheWeightsAndOfTheirState) {
  auto plan = plan_of(GetParam());
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  int cut = 0;
  for (const StateSlot& slot : (*plan)->state().slots()) {
    if (slot.local == slot.type) continue;
    EXPECT_LT(slot.local.bytes(), slot.type.bytes()) << slot.name;
    ++cut;
  }
  EXPECT_GE(cut, 9) << "three weights, each with its two moments";
  for (int t = 0; t < (*plan)->virtual_devices(); ++t)
    EXPECT_LT((*plan)->state_of(t).bytes(), (*plan_of({}))->state_of(0).bytes()) << t;
  EXPECT_FALSE((*plan)->text(EntryKind::train, "plan")->empty());
}

TEST_P(Split, LearnsTheSameBitsFarAway) {
  const std::string name = cat("far_split_", GetParam().name);
  add_backend(far_backend(name, 5));
  auto plan = plan_of(GetParam()), far_plan = plan_of(GetParam(), name);
  ASSERT_TRUE(plan.ok() && far_plan.ok()) << far_plan.status().to_string();
  auto here = Session::create(test_host(2), *plan, {.seed = 7}),
       there = Session::create(test_host(2), *far_plan, {.seed = 7});
  ASSERT_TRUE(here.ok() && there.ok()) << there.status().to_string();
  EXPECT_EQ(train(**here, 0, 3), train(**there, 0, 3));
  const State wanted = state_of(**here), found = state_of(**there);
  for (const auto& [slot, value] : wanted) EXPECT_TRUE(identical(found.at(slot), value)) << slot;
}

// What was saved in full goes on in shards, and what was saved in shards in full.
TEST_P(Split, SavesAndLoadsUnderAnotherLayout) {
  const TemporaryFolder temporary;
  const std::string folder = temporary / "saved";
  auto session = Session::create(test_host(2), *plan_of(GetParam()), {.seed = 7});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  train(**session, 0, 2);
  ASSERT_TRUE(save_session(**session, folder).ok());
  const State saved = state_of(**session);
  for (const Layout& layout : {Layout{}, GetParam()}) {
    auto other = Session::create(test_host(2), *plan_of(layout), {.seed = 1});
    const Status loaded = load_session(**other, folder);
    ASSERT_TRUE(loaded.ok()) << loaded.to_string();
    for (const auto& [name, value] : state_of(**other)) EXPECT_TRUE(identical(value, saved.at(name))) << name;
  }
  train(**session, 2, 1);
}

INSTANTIATE_TEST_SUITE_P(, Split,
                         testing::Values(Layout{"two", 2, 1, R"("default": {"split": 2})"},
                                         Layout{"four", 4, 2, R"("default": {"split": 4})"},
                                         Layout{"beside_data", 4, 2, R"("default": {"split": 2})"},
                                         Layout{"in_stages", 4, 2, std::string(stages)},
                                         Layout{"in_stages_beside_data", 8, 2, std::string(stages)}),
                         [](const auto& info) { return info.param.name; });

TEST_P(Split, SaysWhereAWeightIsNotANumber) {
  const auto refused = [](const Layout& layout) {
    auto session = Session::create(test_host(2), *plan_of(layout), {.seed = 7});
    Tensor weight = *(*session)->state().get("w2");
    weight.set(3 * 16 + 13, NAN);
    EXPECT_TRUE((*session)->state().set("w2", weight).ok());
    StepMetrics metrics;
    EXPECT_TRUE((*session)->step(skip_mlp_batch(0), metrics).ok());
    EXPECT_EQ(metrics.skipped.code(), Code::not_finite);
    return metrics.skipped.message();
  };
  const std::string message = refused(GetParam());
  EXPECT_NE(message.find("w2 itself holds nan"), std::string::npos) << message;
  EXPECT_EQ(message, refused({}));
}

// No node gives it, and each rank has a shard of it.
TEST_P(Split, GivesAWeightAsAnOutput) {
  std::string text(skip_mlp);
  text.insert(text.rfind('}'), "  output weight = w2\n");
  auto plan = plan_of(GetParam(), "cpu", text);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  auto session = Session::create(test_host(2), *plan, {.seed = 7});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  std::vector<Tensor> outputs;
  for (const Port& port : (*plan)->entry(EntryKind::predict)->outputs) outputs.emplace_back(port.global_type);
  const std::vector<Tensor> x = {skip_mlp_batch(0)[0]};
  const Status status = (*session)->predict(x, outputs);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(identical(outputs.at(1), *(*session)->state().get("w2")));
}

// Beside a split nothing changes a bit: not copies, not micro-batches, not stages.
TEST(Splits, GiveTheSameBitsBesideOtherCuts) {
  const std::string two = R"("default": {"split": 2})";
  auto alone = Session::create(test_host(2), *plan_of({"two", 2, 1, two}), {.seed = 7});
  const std::vector<double> losses = train(**alone, 0, 3);
  const State wanted = state_of(**alone);
  for (const Layout& layout : {Layout{"copies", 4, 1, two}, Layout{"turns", 2, 4, two}, Layout{"both", 8, 2, two},
                               Layout{"stages", 4, 2, std::string(stages)}}) {
    auto session = Session::create(test_host(2), *plan_of(layout), {.seed = 7});
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    EXPECT_EQ(train(**session, 0, 3), losses) << layout.name;
    for (const auto& [name, value] : state_of(**session))
      EXPECT_TRUE(identical(value, wanted.at(name))) << layout.name << ": " << name;
  }
}

// By hand: 2 x 6 numbers, whose columns are two runs of 3, each cut in 3.
TEST(Shards, AreTheRunsOfAPlace) {
  const Mesh mesh{.axes = {{"data", 2, MeshAxis::Kind::rank}, {"split", 3, MeshAxis::Kind::rank}},
                  .device = {{0, 1, 2, 3, 4, 5}}};
  const TensorType type{DType::u8, {2, 6}};
  const auto found = [&](const Sharding& sharding, int rank) {
    std::string out;
    for_each_run(type, sharding, mesh, mesh.coordinates(rank), [&](int64_t global, int64_t local, int64_t bytes) {
      out += cat(out.empty() ? "" : " ", global, ">", local, "+", bytes);
    });
    return out;
  };
  EXPECT_EQ(found({.dims = {{}, {}}}, 4), "0>0+12") << "all of it";
  EXPECT_EQ(found({.dims = {{{{0}, 1}}, {}}}, 4), "6>0+6") << "the second row";
  EXPECT_EQ(found({.dims = {{}, {{{1}, 1}}}}, 4), "2>0+2 8>2+2") << "two columns of each row";
  EXPECT_EQ(found({.dims = {{}, {{{1}, 2}}}}, 4), "1>0+1 4>1+1 7>2+1 10>3+1") << "the second of each run of three";
  EXPECT_EQ(found({.dims = {{{{0}, 1}}, {{{1}, 2}}}}, 5), "8>0+1 11>1+1") << "of the second row";
  EXPECT_EQ(found({.dims = {{}, {{{0}, 1}, {{1}, 2}}}}, 5), "5>0+1 11>1+1") << "two cuts of one dimension";
}

// By hand: 10 rows over 4 ranks are 3, 3, 3 and 1; 5 are 2, 2, 1 and none.
TEST(Shards, MayBeUneven) {
  const Mesh mesh{.axes = {{"data", 2, MeshAxis::Kind::rank}, {"split", 4, MeshAxis::Kind::rank}},
                  .device = {{0, 1, 2, 3, 4, 5, 6, 7}}};
  const auto found = [&](const TensorType& type, const Sharding& sharding, int rank) {
    std::string out;
    for_each_run(type, sharding, mesh, mesh.coordinates(rank), [&](int64_t global, int64_t local, int64_t bytes) {
      out += cat(out.empty() ? "" : " ", global, ">", local, "+", bytes);
    });
    return out;
  };
  const TensorType ten{DType::u8, {10}}, five{DType::u8, {2, 5}}, both{DType::u8, {20}};
  const Sharding rows{.dims = {{{{1}, 1, 10}}}}, columns{.dims = {{}, {{{1}, 1, 5}}}};
  EXPECT_EQ(found(ten, rows, 0), "0>0+3");
  EXPECT_EQ(found(ten, rows, 3), "9>0+1");
  EXPECT_EQ(found(five, columns, 0), "0>0+2 5>2+2");
  EXPECT_EQ(found(five, columns, 2), "4>0+1 9>2+1") << "behind each there is padding";
  EXPECT_EQ(found(five, columns, 3), "") << "there is nothing but padding";
  // Two samples of five heads of two elements: the second sample's.
  const Sharding heads{.dims = {{{{0}, 1}, {{1}, 2, 5}}}};
  EXPECT_EQ(found(both, heads, 4), "10>0+4");
  EXPECT_EQ(found(both, heads, 6), "18>0+2");
  // Heads before samples: each head has a sample of each rank.
  const Sharding samples{.dims = {{{{1}, 1, 5}, {{0}, 5}}}};
  EXPECT_EQ(found(both, samples, 4), "2>0+2 6>2+2");
  EXPECT_EQ(boxes_of(both, samples, mesh, mesh.coordinates(4)).size(), 2u);
  EXPECT_EQ(boxes_of(five, columns, mesh, mesh.coordinates(3)).size(), 0u);
  EXPECT_EQ(boxes_of(five, columns, mesh, mesh.coordinates(2)).at(0).shape, (Shape{2, 1}));
}

}  // namespace
}  // namespace epl::split_test
