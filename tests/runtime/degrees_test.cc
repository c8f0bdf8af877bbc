// Stages of different degrees and kinds: data parallelism over more ranks in one than in the other, weights in shards
// in one alone, scopes inside scopes. The bits are those of one rank wherever no product is summed in shards.
#include <gtest/gtest.h>

#include <map>

#include "tests/backend/far_device.h"
#include "tests/runtime/skip_mlp.h"
#include "tests/runtime/trained.h"
#include "tests/thirds.h"

namespace epl::degrees_test {
namespace {

struct Layout {
  std::string name;
  int64_t ranks = 1, micro_batches = 1;
  std::string scopes;  // of the strategy
  bool same_bits = true;
  std::string schedule = "1F1B";
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Layout& layout, std::string_view model = skip_mlp,
                                                    const std::string& device = "cpu") {
  PlanOptions options;
  options.model = GraphModel::parse(model);
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "adamw";
  options.train.optimizer_options = {{"lr", 0.01}};
  options.train.clip_norm = 1;
  options.train_outputs = {"y"};
  options.ranks = layout.ranks;
  options.device = device;
  const std::string text = cat("{\"pipeline.num_micro_batch\": ", layout.micro_batches, ", \"pipeline.strategy\": \"",
                               layout.schedule, "\"", layout.scopes.empty() ? "" : ", ", layout.scopes, "}");
  EPL_ASSIGN(options.strategy, parse_strategy(text));
  return CompiledPlan::create(test_host(2), options);
}

Trained train(const Layout& layout, std::string_view model, const std::string& device = "cpu") {
  return epl::train(plan_of(layout, model, device), layout.name, 4, skip_mlp_batch);
}

std::vector<Layout> layouts() {
  const std::string one = R"("replicate": 1)", two = R"("replicate": 2)", four = R"("replicate": 4)",
                    split = R"("split": 2)", inside = R"("replicate": 4, "scopes": [{"match": "*", "split": 2}])";
  std::vector<Layout> all;
  for (const auto& [name, ranks, scopes] : {std::tuple("2_to_1", 3, two_stages(two, one)),
                                            {"1_to_2", 3, two_stages(one, two)},
                                            {"4_to_2", 6, two_stages(four, two)},
                                            {"2_to_4", 6, two_stages(two, four)},
                                            {"4_to_1", 5, two_stages(four, one)},
                                            {"1_to_4", 5, two_stages(one, four)},
                                            {"2_to_1_twice", 6, two_stages(two, one)}}) {
    for (const int64_t micro_batches : {1, 2})
      all.push_back({cat(name, "_in_", micro_batches), ranks, micro_batches, scopes});
    all.push_back({cat(name, "_GPipe"), ranks, 2, scopes, true, "GPipe"});
  }
  all.push_back({"2_to_1_in_4", 3, 4, two_stages(two, one)});
  all.push_back({"1_to_2_in_4", 3, 4, two_stages(one, two)});
  for (const auto& [name, ranks, scopes] : {std::tuple("copies_to_split", 4, two_stages(two, split)),
                                            {"split_to_copies", 4, two_stages(split, two)},
                                            {"split_to_one", 3, two_stages(split, one)},
                                            {"copies_to_split_copies", 6, two_stages(two, inside)},
                                            {"split_copies_to_four", 8, two_stages(inside, four)}}) {
    for (const int64_t micro_batches : {1, 2})
      all.push_back({cat(name, "_in_", micro_batches), ranks, micro_batches, scopes, false});
  }
  all.push_back(
      {"split_inside_copies", 4, 2, R"("default": {"replicate": 2, "scopes": [{"match": "*", "split": 2}]})", false});
  return all;
}

class Degrees : public ::testing::TestWithParam<Layout> {
 protected:
  void expect_learns(std::string_view model, const std::string& device = "cpu") {
    const Trained found = train(GetParam(), model, device), wanted = train({}, model);
    if (GetParam().same_bits) return expect_same(found, wanted, GetParam().name);
    expect_near(found, wanted, GetParam().name, 1e-5, 1e-5);
  }
};

TEST_P(Degrees, LearnWhatOneRankLearns) {
  EPL_ONE_OF_THREE();
  expect_learns(skip_mlp);
}

TEST_P(Degrees, DrawTheSameRandomNumbers) {
  EPL_ONE_OF_THREE();
  expect_learns(dropout_mlp);
}

TEST_P(Degrees, RunOnAFarDevice) {
  EPL_ONE_OF_THREE();
  const std::string name = cat("far_degrees_", GetParam().name);
  add_backend(far_backend(name, 5));
  expect_learns(skip_mlp, name);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Degrees, ::testing::ValuesIn(layouts()),
                         [](const auto& info) { return info.param.name; });

TEST(Degrees, AreRefusedWithTheirNumbers) {
  const auto message = [](const Layout& layout) { return plan_of(layout).status().message(); };
  EXPECT_NE(message({.ranks = 4, .scopes = two_stages(R"("replicate": 2)", R"("replicate": 1)")})
                .find("first 2 + second 1 = 3 ranks for a copy, which do not divide the 4"),
            std::string::npos);
  EXPECT_NE(message({.ranks = 2, .scopes = R"("default": {"split": 3})"}).find("3 ranks do not divide the 2"),
            std::string::npos);
  EXPECT_NE(message({.ranks = 4, .scopes = two_stages(R"("replicate": 3, "scopes": [{"split": 2}])", R"("split": 1)")})
                .find("2 ranks do not divide the 3 of scope first (replicate 3)"),
            std::string::npos);
  EXPECT_NE(message({.ranks = 2, .scopes = R"("scopes": [{"replicate": 1, "match": "h*"},
                                                         {"replicate": 1, "match": "nothing*"}])"})
                .find("matches no node: nothing*"),
            std::string::npos);
}

}  // namespace
}  // namespace epl::degrees_test
