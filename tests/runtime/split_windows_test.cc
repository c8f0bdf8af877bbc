// Images over ranks by their rows: windows of convolutions and pools read over the borders of the shards, forward and
// backward, and weights stay replicated.
#include <gtest/gtest.h>

#include <regex>

#include "tests/backend/far_device.h"
#include "tests/runtime/trained.h"

namespace epl::split_windows_test {
namespace {

// A small residual network: a stem of stride 2, a maximum, a block with a stride and a shortcut, means, a classifier.
constexpr std::string_view network = R"(graph network(x: f32[8,3,64,32] batch 0) {
  w1: f32[8,3,7,7] = param
  b1: f32[8] = param
  w2: f32[16,8,3,3] = param
  w3: f32[16,16,3,3] = param
  b3: f32[16] = param
  short: f32[16,8,1,1] = param
  fc: f32[16,8] = param
  forward:
  h1: f32[8,8,32,16] = conv(x, w1, b1) {strides=[2,2], pads=[3,3,3,3]}
  a1: f32[8,8,32,16] = relu(h1)
  p1: f32[8,8,16,8], p1.at: i32[8,8,16,8] = max_pool(a1) {kernel=[3,3], strides=[2,2], pads=[1,1,1,1]}
  h2: f32[8,16,8,4] = conv(p1, w2) {strides=[2,2], pads=[1,1,1,1]}
  sums: f32[1,16,1,1] = sum(h2) {axes=[0,2,3], keep=true}
  n2: f32[8,16,8,4] = sub(h2, sums)
  a2: f32[8,16,8,4] = tanh(n2)
  h3: f32[8,16,8,4] = conv(a2, w3, b3) {pads=[1,1,1,1]}
  s: f32[8,16,8,4] = conv(p1, short) {strides=[2,2]}
  r: f32[8,16,8,4] = add(h3, s)
  p2: f32[8,16,4,2] = avg_pool(r) {kernel=[2,2], strides=[2,2]}
  pooled: f32[8,16] = sum(p2) {axes=[2,3], keep=false}
  y: f32[8,8] = matmul(pooled, fc)
  output y = y
}
)";

const char* far_name() {
  static const bool added = (add_backend(far_backend("far_windows", 5)), true);
  return added ? "far_windows" : "";
}

struct Layout {
  std::string name;
  int64_t ranks = 1;
  std::string strategy;  // keys and scopes
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Layout& layout, const std::string& level = "data",
                                                    const std::string& device = "cpu") {
  auto options = layout_options(GraphModel::parse(network), layout.ranks, at_level(level, layout.strategy));
  if (options.ok()) {
    options->device = device;
    options->train.optimizer = "momentum";
    options->train.optimizer_options = {{"lr", 0.01}};
    options->train.clip_norm = 0;
  }
  return layout_plan(options);
}

std::vector<Tensor> batch(int step) {
  Tensor x(TensorType{DType::f32, {8, 3, 64, 32}}), target(TensorType{DType::i64, {8}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
  for (int i = 0; i < 8; ++i) target.set_int(i, (i + step) % 8);
  return {x, target};
}

std::string local_of(const Layout& layout, const std::string& level = "data") {
  auto plan = plan_of(layout, level);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return plan.ok() ? *(*plan)->text(EntryKind::train, "local") : std::string();
}

int times(const std::string& text, const std::string& pattern) {
  const std::regex wanted(pattern);
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), wanted), {}));
}

class SplitWindows : public ::testing::TestWithParam<Layout> {};

TEST_P(SplitWindows, LearnWhatOneRankLearns) {
  expect_near(train(plan_of(GetParam()), GetParam().name, 4, batch), train(plan_of({}), "one", 4, batch),
              GetParam().name, 1e-4, 1e-4, 1e-3);
}

TEST_P(SplitWindows, HaveTheSameBitsOnAFarDevice) {
  expect_same(train(plan_of(GetParam(), "data", far_name()), "far", 2, batch),
              train(plan_of(GetParam()), "here", 2, batch), GetParam().name);
}

// Sums of other shards than segments have other bits: rows are not cut then.
TEST_P(SplitWindows, AreNotCutAtLevelLayout) {
  expect_same(train(plan_of(GetParam(), "layout"), GetParam().name, 3, batch),
              train(plan_of({}, "layout"), "one", 3, batch), GetParam().name);
  EXPECT_EQ(local_of(GetParam(), "layout").find("= halo("), std::string::npos);
}

TEST_P(SplitWindows, ReadRowsOfTheirNeighbours) {
  const std::string local = local_of(GetParam());
  EXPECT_GT(times(local, R"(\n  h1\.x\S* \S+ = halo\()"), 0) << local;
  for (const char* weight : {"w1", "w2", "w3", "short"})
    EXPECT_EQ(local.find(cat("\nstate ", weight, " ")), std::string::npos) << weight << " is in shards";
  EXPECT_EQ(times(local, R"( (p1|p1\.at|a1|h2|h3|r|a1\.gradient|p1\.gradient|h2\.gradient)\.(gathered|exchanged))"), 0)
      << local;
}

// Two convolutions over images of so many rows and columns, from and to so many channels.
std::string pair_of(int64_t size, int64_t outer, int64_t inner) {
  const auto image = [&](int64_t channels) { return cat("f32[8,", channels, ",", size, ",", size, "]"); };
  return cat("graph pair(x: ", image(outer), " batch 0) {\n  w1: f32[", inner, ",", outer, ",3,3] = param\n  w2: f32[",
             outer, ",", inner, ",3,3] = param\n  fc: f32[", outer, ",8] = param\n  forward:\n  h1: ", image(inner),
             " = conv(x, w1) {pads=[1,1,1,1]}\n  a1: ", image(inner), " = relu(h1)\n  h2: ", image(outer),
             " = conv(a1, w2) {pads=[1,1,1,1]}\n  pooled: f32[8,", outer,
             "] = sum(h2) {axes=[2,3], keep=false}\n  y: f32[8,8] = matmul(pooled, fc)\n  output y = y\n}\n");
}

// Rows of large images move less than channels; those of small ones with large weights do not.
TEST(SplitRows, AreTakenWhereTheyMoveLess) {
  const auto halos = [](const std::string& model, const std::string& keys) {
    auto plan = layout_plan(layout_options(GraphModel::parse(model), 2, at_level("data", keys)));
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    return plan.ok() ? times(*(*plan)->text(EntryKind::train, "local"), R"( = halo\()") : -1;
  };
  const std::string split = R"("default": {"split": 2})";
  EXPECT_GT(halos(pair_of(32, 8, 16), split), 0);
  EXPECT_EQ(halos(pair_of(32, 8, 16), cat(split, R"(, "split.spatial": "off")")), 0);
  EXPECT_EQ(halos(pair_of(4, 64, 256), split), 0);
}

// Rows are cut because a pin says so, and channels because another one does.
TEST(SplitRows, ArePinned) {
  const Trained alone = train(plan_of({}), "one", 3, batch);
  for (const std::string dims : {R"("h1": 2)", R"("p1": 2, "h2": 2)", R"("h1": 1)", R"("w2": 0)", R"("w3": 1)"}) {
    const Layout layout{dims, 2, cat(R"("default": {"split": 2, "dims": {)", dims, "}}")};
    const bool rows = dims.find("2") != std::string::npos && dims.find("w2") == std::string::npos;
    EXPECT_EQ(local_of(layout).find("= halo(") != std::string::npos, rows) << dims;
    expect_near(train(plan_of(layout), dims, 3, batch), alone, dims, 1e-4, 1e-4, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(, SplitWindows,
                         ::testing::Values(Layout{"two", 2, R"("split.spatial": "on", "default": {"split": 2})"},
                                           Layout{"four", 4, R"("split.spatial": "on", "default": {"split": 4})"},
                                           Layout{"beside_copies", 4,
                                                  R"("split.spatial": "on", "default": {"split": 2})"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace epl::split_windows_test
