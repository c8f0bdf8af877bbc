// Published results against predictions: the numbers that bench/credibility/README.md promises, and what they rest on.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>

#include "bench/credibility/judge.h"
#include "core/base/text.h"
#include "tests/temporary_folder.h"

namespace epl::credibility::credibility_test {
namespace {

const std::string folder = EPL_SOURCE_DIR "/bench/credibility";

Book book() {
  Result<Book> read = read_book(folder);
  EXPECT_TRUE(read.ok()) << read.status().message();
  return read.ok() ? std::move(read).value() : Book();
}

double relative(const Book& book, const Row& row) {
  const auto predicted = predict(book, row);
  EXPECT_TRUE(predicted.ok()) << predicted.status().message();
  return predicted.ok() ? predicted->seconds / row.seconds - 1 : HUGE_VAL;
}

TEST(Transformers, HaveTheParametersThatTheirNamesSay) {
  const Transformer gpt3{.hidden = 12288, .layers = 96, .heads = 96, .sequence = 2048, .vocabulary = 51200};
  EXPECT_NEAR(gpt3.parameters(), 175e9, 1e9);
  const Transformer bert{.hidden = 1024, .layers = 24, .heads = 16, .sequence = 512, .vocabulary = 30522};
  EXPECT_NEAR(bert.parameters(), 334e6, 2e6);
  const Transformer llama{.hidden = 16384,
                          .layers = 126,
                          .heads = 128,
                          .sequence = 8192,
                          .vocabulary = 128256,
                          .shared_heads = 8,
                          .inner = 53248,
                          .gated = true,
                          .tied = false};
  EXPECT_NEAR(llama.parameters(), 405.8e9, 1e9);
}

// A problem whose machine does nothing but products: 6 operations for a parameter and a token, and attention's.
TEST(Transformers, TakeTheSecondsOfTheirProducts) {
  const Transformer model{.hidden = 1024, .layers = 4, .heads = 8, .sequence = 256, .vocabulary = 4096};
  const Machine machine = {.name = "products",
                           .rates = {{DType::f32, WorkKind::product, 1e12}},
                           .memories = {{MemoryKind::device, 1e30}, {MemoryKind::host, 1e30}},
                           .links = {{.bandwidth = 1e30}}};
  const int64_t alone[] = {1, 2};
  const SearchProblem problem = problem_of(model, {.passes = 1}, {}, machine, 2, alone);
  double seconds = 0;
  for (const int kind : problem.layers)
    seconds += problem.forms[0].kinds[kind].forward.once + problem.forms[0].kinds[kind].backward.once;
  const double tokens = 512, attention = 0.5 * 12 * 4 * 1024 * 256 * tokens;
  EXPECT_NEAR(seconds * 1e12 / (6 * model.parameters() * tokens + attention), 1, 1e-6);
  const SearchLayer &whole = problem.forms[0].kinds[1], &half = problem.forms[1].kinds[1];
  EXPECT_NEAR(half.forward.once * 2 / whole.forward.once, 1, 1e-6);
  EXPECT_NEAR(half.weights * 2 / whole.weights, 1, 1e-6);
  // Computed again, a layer keeps its input alone.
  const SearchProblem again = problem_of(model, {.passes = 1}, {.again = 1}, machine, 2, alone);
  EXPECT_EQ(again.forms[0].kinds[1].kept, 2 * 256 * 1024);
  EXPECT_NEAR(again.forms[0].kinds[1].backward.once / whole.backward.once, 1.5, 1e-6);
}

TEST(Judging, RanksAndErrors) {
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3, 4}, {10, 20, 30, 40}), 1);
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3, 4}, {4, 3, 2, 1}), -1);
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 2, 3}, {5, 6, 6, 7}), 1) << "equal ones share a rank";
  const Errors errors = errors_of({-0.1, 0.02, 0.04, 0.3, -0.05});
  EXPECT_DOUBLE_EQ(errors.median, 0.05);
  EXPECT_DOUBLE_EQ(errors.bias, 0.02);
  EXPECT_NEAR(errors.p90, 0.1 + 0.6 * 0.2, 1e-12);
}

// The part of a table that a set does not say, and a mistake in each.
TEST(Tables, OthersAreReadLikeTheirSet) {
  const TemporaryFolder place;
  const std::string head =
      "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,data "
      "parallelism,pipeline parallelism,iteration time (ms)\n";
  const auto read = [&](const std::string& rows) {
    std::ofstream(place / "more.csv", std::ios::trunc) << head << rows;
    return read_book(folder, place / "more.csv", "vtrain");
  };
  const auto one = read("512,1536,2,8192,64,48,2048,8,16,4,15000\n");
  ASSERT_TRUE(one.ok()) << one.status().message();
  ASSERT_EQ(one->rows.size(), 1u);
  const Row& row = one->rows[0];
  EXPECT_EQ(row.model, "8192x48");
  EXPECT_EQ(row.micro_batches(), 48);
  EXPECT_EQ(row.seconds, 15);
  EXPECT_FALSE(row.fitted);
  EXPECT_TRUE(row.mark.empty());
  EXPECT_FALSE(read("512,1536,2,8192,64,48,2048,2,16,16,15000\n")->rows[0].mark.empty());
  for (const char* wrong :
       {"512,1536,2,8192,64,48,2048,8,16,2,15000\n", "512,1536,5,8192,64,48,2048,8,16,4,15000\n",
        "512,1536,2,wide,64,48,2048,8,16,4,15000\n", "512,1536,2,8192,64,48,2048,8,16,4,0\n", "512,1536,2\n"}) {
    const auto refused = read(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_NE(refused.status().message().find("line 2"), std::string::npos) << refused.status().message();
  }
  EXPECT_FALSE(read_book(folder, place / "more.csv", "elsewhere").ok());
}

TEST(Fitting, FindsAConstantAgain) {
  Book all = book(), some = book();
  some.rows.clear();
  for (const Row& row : all.rows) {
    if (row.set != "vtrain" || !row.fitted) continue;
    some.rows.push_back(row);
    some.rows.back().seconds = predict(all, row)->seconds;
  }
  ASSERT_GT(some.rows.size(), 20u);
  double& rate = *some.constants.at("a100 f16");
  const double before = rate;
  rate *= 0.8;
  ASSERT_TRUE(fit(some, {"a100 f16"}, {"vtrain"}, 12).ok());
  EXPECT_NEAR(rate / before, 1, 0.01);
  EXPECT_FALSE(fit(some, {"a100 colour"}, {"vtrain"}, 1).ok());
  EXPECT_FALSE(fit(some, {"a100 f16"}, {"mpt"}, 1).ok()) << "of which there are no rows";
}

// The gate: of models and clusters that no constant was fitted on.
TEST(Credibility, HeldOutRowsArePredicted) {
  const Book all = book();
  std::map<std::string, std::vector<double>> held;
  std::map<std::string, std::vector<double>> measured, predicted;  // by model, of a sample and a rank
  for (const Row& row : all.rows) {
    if (!row.mark.empty() || row.fitted) continue;
    const double error = relative(all, row), share = row.seconds * double(row.ranks) / double(row.batch);
    held["all"].push_back(error);
    held[row.set].push_back(error);
    measured[cat(row.set, " ", row.model)].push_back(share);
    predicted[cat(row.set, " ", row.model)].push_back(share * (1 + error));
  }
  EXPECT_GT(held["all"].size(), 590u);
  for (const char* set : {"all", "vtrain", "vtrain-host", "mpt"}) {
    EXPECT_LE(errors_of(held[set]).median, 0.05) << set;
    EXPECT_LE(errors_of(held[set]).p90, 0.15) << set;
  }
  int models = 0;
  for (const auto& [model, seconds] : measured) {
    if (!model.starts_with("vtrain-host")) continue;
    ++models;
    EXPECT_GE(rank_correlation(seconds, predicted[model]), 0.97) << model;
  }
  EXPECT_EQ(models, 4);
  // Half of its plans lie within 15 % of the best.
  EXPECT_GE(rank_correlation(measured["vtrain 8192x48"], predicted["vtrain 8192x48"]), 0.7);
}

// Of each model on a cluster, what the search would have run instead of the best that was measured.
TEST(Credibility, TheSearchPicksAPlanNearTheBest) {
  Book some = book();
  std::erase_if(some.rows, [](const Row& row) { return row.set != "vtrain"; });
  const auto judged = judge(some);
  ASSERT_TRUE(judged.ok()) << judged.status().message();
  ASSERT_EQ(judged->choices.size(), 3u);
  for (const Choice& choice : judged->choices) {
    EXPECT_GT(choice.count, 20u);
    EXPECT_LE(choice.distance, 0.03) << choice.model << ": " << choice.picked->name;
  }
}

}  // namespace
}  // namespace epl::credibility::credibility_test
