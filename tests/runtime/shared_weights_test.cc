// A weight that several scopes use lies in one way: what they may ask for together, and what is refused by name.
#include <gtest/gtest.h>

#include "tests/runtime/trained.h"

namespace epl::shared_weights_test {
namespace {

// The embedding is that of the scores, too.
constexpr std::string_view tied = R"(graph tied(ids: i64[8,4] batch 0) {
  wte: f32[16,8] = param
  w: f32[8,8] = param
  forward:
  embedded: f32[8,4,8] = gather(wte, ids)
  hidden: f32[8,4,8] = matmul(embedded, w)
  scores: f32[8,4,16] = matmul(hidden, wte) {transpose_b=true}
  output scores = scores
}
)";

Result<std::shared_ptr<const CompiledPlan>> plan_of(int64_t ranks, const std::string& keys) {
  return layout_plan(layout_options(GraphModel::parse(tied), ranks, at_level("data", keys)));
}

std::vector<Tensor> batch_of(int step) {
  Tensor ids({DType::i64, {8, 4}}), target({DType::i64, {8, 4}});
  for (int64_t i = 0; i < 32; ++i) {
    ids.set_int(i, (i * 7 + step * 3) % 16);
    target.set_int(i, (i * 5 + step) % 16);
  }
  return {ids, target};
}

std::string two_scopes(const std::string& first, const std::string& second, bool same_ranks) {
  return cat(same_ranks ? R"("cluster.colocate_split_and_replicate": true, )" : "", R"("scopes": [{"name": "first", )",
             first, R"(, "match": ["embedded", "hidden"]}, {"name": "second", )", second, R"(, "match": ["*"]}])");
}

class Refused : public ::testing::TestWithParam<std::tuple<int64_t, std::string, std::vector<std::string>>> {};

TEST_P(Refused, NamesTheWeightBothScopesAndTheirNumbers) {
  const auto& [ranks, keys, words] = GetParam();
  auto plan = plan_of(ranks, keys);
  ASSERT_FALSE(plan.ok()) << keys;
  EXPECT_EQ(plan.status().code(), Code::invalid_argument);
  for (const std::string& word : words)
    EXPECT_NE(plan.status().message().find(word), std::string::npos) << plan.status().message();
}

INSTANTIATE_TEST_SUITE_P(
    SharedWeights, Refused,
    ::testing::Values(std::tuple(int64_t{6}, two_scopes(R"("split": 2)", R"("split": 4)", false),
                                 std::vector<std::string>{"wte", "first (split 2", "second (split 4", "node embedded",
                                                          "node scores"}),
                      std::tuple(int64_t{4}, two_scopes(R"("split": 2)", R"("split": 4)", true),
                                 std::vector<std::string>{"wte", "first (split 2", "second (split 4"}),
                      std::tuple(int64_t{3}, two_scopes(R"("replicate": 1)", R"("split": 2)", false),
                                 std::vector<std::string>{"wte", "first (replicated", "second (split 2"})));

// Stages of one degree share a weight, copies of other numbers do, and so do scopes that both have it replicated; on
// the same ranks one of them may.
TEST(SharedWeights, MayBeTied) {
  const auto learn = [](int64_t ranks, const std::string& keys) {
    return train(plan_of(ranks, keys), keys, 3, batch_of);
  };
  const Trained alone = learn(1, "");
  for (const auto& [ranks, keys] :
       std::vector<std::pair<int64_t, std::string>>{{2, two_scopes(R"("replicate": 1)", R"("replicate": 1)", false)},
                                                    {3, two_scopes(R"("replicate": 1)", R"("replicate": 2)", false)},
                                                    {4, two_scopes(R"("split": 2)", R"("split": 2)", false)},
                                                    {3, two_scopes(R"("split": 2)", R"("replicate": 1)", false)},
                                                    {2, two_scopes(R"("split": 2)", R"("split": 2)", true)},
                                                    {2, two_scopes(R"("replicate": 2)", R"("split": 2)", true)},
                                                    {2, two_scopes(R"("split": 2)", R"("replicate": 2)", true)}})
    expect_near(learn(ranks, keys), alone, keys, 1e-5, 2e-3);
}

// Whether a schedule gives two stages to the same ranks or not, what they share is cut alike, and so are sums.
TEST(SharedWeights, LieAlikeWhicheverRanksHaveTheStages) {
  std::string scopes;
  for (const char* node : {"embedded", "hidden", "scores", "*"})
    scopes += cat(scopes.empty() ? "" : ", ", R"({"name": "at )", node, R"(", "split": 2, "match": [")", node, "\"]}");
  const auto learn = [&](const std::string& schedule) {
    const std::string keys = cat(R"("pipeline.num_micro_batch": 2, )", schedule, R"("scopes": [)", scopes, "]");
    return train(plan_of(8, keys), keys, 3, batch_of);
  };
  expect_same(learn(R"("pipeline.strategy": "interleaved", "pipeline.virtual_stages": 2, )"), learn(""), "interleaved");
}

}  // namespace
}  // namespace epl::shared_weights_test
