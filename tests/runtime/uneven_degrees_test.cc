// Numbers of ranks and of micro-batches that are not powers of two, and stages of which none's number divides the
// other's. At level run they learn what one rank learns; at level data those that keep the tree of sums have one
// another's bits.
#include <gtest/gtest.h>

#include "tests/backend/far_device.h"
#include "tests/runtime/skip_mlp.h"
#include "tests/runtime/trained.h"
#include "tests/thirds.h"

namespace epl::uneven_degrees_test {
namespace {

constexpr int samples = 24;

struct Layout {
  std::string name;
  int64_t ranks = 1, micro_batches = 1;
  std::string keys = {};  // of the strategy
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Layout& layout, std::string_view model,
                                                    const std::string& device = "cpu") {
  PlanOptions options;
  options.model = GraphModel::parse(with_samples(model, samples));
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "adamw";
  options.train.optimizer_options = {{"lr", 0.01}};
  options.train.clip_norm = 1;
  options.ranks = layout.ranks;
  options.device = device;
  EPL_ASSIGN(options.strategy, parse_strategy(cat("{\"pipeline.num_micro_batch\": ", layout.micro_batches,
                                                  layout.keys.empty() ? "" : ", ", layout.keys, "}")));
  return CompiledPlan::create(test_host(2), options);
}

Trained train(const Layout& layout, std::string_view model, const std::string& device = "cpu") {
  return train(plan_of(layout, model, device), layout.name, 4,
               [](int step) { return skip_mlp_samples(step, samples); });
}

constexpr std::string_view one = R"("replicate": 1)", two = R"("replicate": 2)", three = R"("replicate": 3)",
                           four = R"("replicate": 4)", six = R"("replicate": 6)", split = R"("split": 2)";

// Each learns what one rank learns.
std::vector<Layout> at_level_run() {
  std::vector<Layout> all = {{"3_ranks", 3, 1}, {"6_ranks", 6, 1}, {"3_ranks_in_2", 3, 2}, {"2_ranks_in_3", 2, 3},
                             {"in_3", 1, 3},    {"in_6", 1, 6},    {"in_12", 1, 12}};
  for (const auto& [name, ranks, first, second] : {std::tuple("2_to_3", 5, two, three),
                                                   {"3_to_2", 5, three, two},
                                                   {"4_to_6", 10, four, six},
                                                   {"6_to_4", 10, six, four},
                                                   {"1_to_3", 4, one, three},
                                                   {"3_to_1", 4, three, one},
                                                   {"2_to_6", 8, two, six},
                                                   {"3_to_split", 5, three, split}}) {
    for (const int64_t micro_batches : {1, 2})
      all.push_back({cat(name, "_in_", micro_batches), ranks, micro_batches, two_stages(first, second)});
  }
  for (Layout& layout : all) layout.keys += cat(layout.keys.empty() ? "" : ", ", R"("reproducible.level": "run")");
  return all;
}

class UnevenDegrees : public ::testing::TestWithParam<Layout> {};

TEST_P(UnevenDegrees, LearnWhatOneRankLearns) {
  EPL_ONE_OF_THREE();
  for (const std::string_view model : {skip_mlp, dropout_mlp})
    expect_near(train(GetParam(), model), train({"one"}, model), GetParam().name, 1e-5, 1e-5);
}

TEST_P(UnevenDegrees, RunOnAFarDevice) {
  EPL_ONE_OF_THREE();
  const std::string name = cat("far_uneven_", GetParam().name);
  add_backend(far_backend(name, 5));
  expect_near(train(GetParam(), dropout_mlp, name), train({"one"}, dropout_mlp), GetParam().name, 1e-5, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Layouts, UnevenDegrees, ::testing::ValuesIn(at_level_run()),
                         [](const auto& info) { return info.param.name; });

TEST(UnevenDegreesAtLevelData, HaveOneAnothersBits) {
  const std::string units = R"("reproducible.units": 24)";
  const Trained wanted = train({"3_ranks", 3, 1, units}, dropout_mlp);
  for (const Layout& layout : {Layout{"6_ranks", 6, 1},
                               {"12_ranks", 12, 1},
                               {"24_ranks", 24, 1},
                               {"3_ranks_in_2", 3, 2},
                               {"6_ranks_in_4", 6, 4},
                               {"in_3", 1, 3},
                               {"in_12", 1, 12},
                               {"1_to_3", 4, 1, two_stages(one, three)},
                               {"3_to_1_in_2", 4, 2, two_stages(three, one)},
                               {"3_to_6_in_2", 9, 2, two_stages(three, six)},
                               {"6_to_3", 9, 1, two_stages(six, three)},
                               {"3_to_6_in_4", 9, 4, two_stages(three, six)}}) {
    Layout asked = layout;
    asked.keys += cat(asked.keys.empty() ? "" : ", ", units);
    expect_same(train(asked, dropout_mlp), wanted, layout.name);
  }
}

TEST(UnevenDegreesAtLevelData, AreRefusedWhereTheyWouldHaveBitsOfTheirOwn) {
  const auto why = [](const Layout& layout) { return plan_of(layout, skip_mlp).status().message(); };
  EXPECT_NE(why({"", 3}).find("the batch of 24 has 8 units, of which each of 3 shards (3 ranks x 1 micro-batches) must "
                              "get 1, 2, 4 or another power of two; it does with reproducible.units = 24"),
            std::string::npos)
      << why({"", 3});
  const std::string units = R"("reproducible.units": 24)";
  EXPECT_NE(why({"", 2, 3, units}).find("in an order of their own"), std::string::npos);
  EXPECT_NE(why({"", 5, 1, cat(units, ", ", two_stages(two, three))}).find("in an order of their own"),
            std::string::npos);
}

}  // namespace
}  // namespace epl::uneven_degrees_test
