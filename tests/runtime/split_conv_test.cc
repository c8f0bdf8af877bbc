// Convolutions over ranks: by output channels, then by those that are summed over, so that two of them take one sum;
// and what stands between (norms, pools, activations) follows.
#include <gtest/gtest.h>

#include <regex>

#include "tests/runtime/trained.h"

namespace epl::split_conv_test {
namespace {

constexpr std::string_view cnn = R"(graph cnn(x: f32[8,3,6,6] batch 0) {
  w1: f32[16,3,3,3] = param
  b1: f32[16] = param
  w2: f32[16,16,3,3] = param
  b2: f32[16] = param
  w3: f32[32,16,3,3] = param
  w4: f32[16,32,1,1] = param
  fc: f32[16,8] = param
  forward:
  h1: f32[8,16,6,6] = conv(x, w1, b1) {pads=[1,1,1,1]}
  a1: f32[8,16,6,6] = relu(h1)
  p1: f32[8,16,3,3], p1.at: i32[8,16,3,3] = max_pool(a1) {kernel=[2,2], strides=[2,2]}
  h2: f32[8,16,3,3] = conv(p1, w2, b2) {pads=[1,1,1,1]}
  a2: f32[8,16,3,3] = relu(h2)
  h3: f32[8,32,3,3] = conv(a2, w3) {pads=[1,1,1,1]}
  a3: f32[8,32,3,3] = relu(h3)
  h4: f32[8,16,3,3] = conv(a3, w4)
  r: f32[8,16,3,3] = add(h4, a2)
  pooled: f32[8,16] = sum(r) {axes=[2,3], keep=false}
  y: f32[8,8] = matmul(pooled, fc)
  output y = y
}
)";

struct Layout {
  std::string name;
  int64_t ranks = 1;
  std::string strategy;  // keys and scopes
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Layout& layout, const std::string& level) {
  auto options = layout_options(GraphModel::parse(cnn), layout.ranks, at_level(level, layout.strategy));
  if (options.ok()) {
    options->train.optimizer = "momentum";
    options->train.optimizer_options = {{"lr", 0.05}};
    options->train.clip_norm = 0;
  }
  return layout_plan(options);
}

std::vector<Tensor> batch(int step) {
  Tensor x(TensorType{DType::f32, {8, 3, 6, 6}}), target(TensorType{DType::i64, {8}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
  for (int i = 0; i < 8; ++i) target.set_int(i, (i + step) % 8);
  return {x, target};
}

Trained trained(const Layout& layout, const std::string& level) {
  return train(plan_of(layout, level), layout.name, 4, batch);
}

class SplitConv : public ::testing::TestWithParam<Layout> {};

TEST_P(SplitConv, LearnsWhatOneRankLearns) {
  expect_near(trained(GetParam(), "data"), trained({}, "data"), GetParam().name, 1e-5, 1e-5, 1e-5);
}

TEST_P(SplitConv, HasTheBitsOfOneRankAtLevelLayout) {
  expect_same(trained(GetParam(), "layout"), trained({}, "layout"), GetParam().name);
}

// Two convolutions are a pair: the first gives shards of its channels, the second sums over them.
TEST_P(SplitConv, TakesASumForTwoConvolutionsAndGathersNoWeight) {
  const std::string local = *(*plan_of(GetParam(), "data"))->text(EntryKind::train, "local");
  for (const char* weight : {"w1", "w2", "w3", "w4"}) {
    EXPECT_NE(local.find(cat("\nstate ", weight, " ")), std::string::npos) << weight << " is not cut";
    EXPECT_EQ(local.find(cat(weight, ".gathered")), std::string::npos) << weight;
  }
  const std::regex collective(R"(  ([hap]\d\.\w+): .* = (all_reduce|all_gather|reduce_scatter)\(.*axis="split")");
  std::string found;
  for (std::sregex_iterator at(local.begin(), local.end(), collective), end; at != end; ++at)
    found += cat((*at)[1].str(), " ");
  EXPECT_EQ(found, "h2.reduced h4.reduced ") << "of the forward pass";
}

INSTANTIATE_TEST_SUITE_P(
    , SplitConv,
    ::testing::Values(Layout{"two", 2, R"("default": {"split": 2})"}, Layout{"four", 4, R"("default": {"split": 4})"},
                      Layout{"beside_copies", 4, R"("default": {"split": 2}, "pipeline.num_micro_batch": 2)"}),
    [](const auto& info) { return info.param.name; });

// An expert scope over found stages, of a model without experts: what the search for experts has cut is taken back, and
// each weight is cut over the ranks of its stage once.
TEST(StagesOfExperts, MayHaveNone) {
  const Layout stages = {"stages", 4,
                         R"("default": {"expert": 2}, "pipeline.num_stages": 2, "pipeline.num_micro_batch": 2)"};
  expect_near(trained(stages, "data"), trained({}, "data"), stages.name, 1e-5, 1e-5, 1e-5);
  expect_same(trained(stages, "layout"), trained({}, "layout"), stages.name);
}

}  // namespace
}  // namespace epl::split_conv_test
