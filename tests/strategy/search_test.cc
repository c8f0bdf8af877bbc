// The search over plans: against every candidate there is where ranks and layers are few, and a model of 175 billion
// parameters on 1,024 devices in time.
#include "core/strategy/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <random>
#include <tuple>

#include "tests/strategy/search_problems.h"

namespace epl::search_test {
namespace {

int draw(std::mt19937& random, int from, int to) {
  return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
}

// Hosts of so many ranks, between which links are slower.
Machine machine_of(int64_t host, double near, double far) {
  Machine machine = processor_core();
  machine.links = {{.ranks = host, .bandwidth = near, .seconds = 0.01}, {.ranks = 0, .bandwidth = far, .seconds = 0.1}};
  machine.memories = {{Machine::Memory::Kind::device, 40}, {Machine::Memory::Kind::host, 8}};
  return machine;
}

// Of drawn problems, at most.
struct Sizes {
  std::vector<int> ranks, batches;
  int layers = 1, ways = 1;
};

SearchLayer drawn_layer(std::mt19937& random, int64_t ranks, int most_ways) {
  const auto some = [&](int from, int to) { return static_cast<double>(draw(random, from, to)); };
  SearchLayer layer{.forward = {some(0, 3), some(1, 12)}, .backward = {some(0, 3), some(1, 24)}};
  layer.weights = some(0, 40) / static_cast<double>(ranks);
  layer.parameters = draw(random, 0, 3);
  layer.expert_weights = draw(random, 0, 2) == 0 ? some(1, 40) : 0;
  layer.kept = some(2, 20);
  layer.working = some(0, 10);
  layer.enters = some(1, 6);
  layer.given = draw(random, 0, 2) == 0 ? some(1, 6) : 0;
  layer.gradient = some(0, static_cast<int>(layer.weights));
  for (int ways = draw(random, 0, most_ways); ways > 0; --ways)
    layer.again.push_back({{some(0, 2), some(0, 6)}, some(0, static_cast<int>(layer.kept))});
  return layer;
}

int one_of(std::mt19937& random, const std::vector<int>& numbers) {
  return numbers[static_cast<size_t>(draw(random, 0, static_cast<int>(numbers.size()) - 1))];
}

SearchProblem drawn(std::mt19937& random, const Sizes& sizes) {
  const int host = draw(random, 1, 4);
  SearchProblem problem{.cost = CostModel(machine_of(host, 30, draw(random, 2, 30)))};
  problem.ranks = one_of(random, sizes.ranks);
  problem.batch = one_of(random, sizes.batches);
  if (problem.ranks > 1 && draw(random, 0, 2) == 0) {
    const int64_t others = draw(random, 1, static_cast<int>(problem.ranks) - 1);
    problem.devices = {{.ranks = problem.ranks - others},
                       {.ranks = others, .speed = one_of(random, {1, 2, 8}) / 4.0, .memory = draw(random, 1, 3) / 2.0}};
  }
  problem.units = one_of(random, {0, 2, 4, 8});
  // That no sum of what candidates have there is equal to.
  problem.beside_bytes = one_of(random, {0, 0, 0, 40, 90, 200});
  if (problem.beside_bytes > 0) problem.beside_bytes += 0.0123;
  problem.always = draw(random, 0, 20);
  problem.two_levels = static_cast<int>(problem.always) % 2 == 1;
  problem.states = draw(random, 0, 2);
  problem.tree = draw(random, 0, 1) == 1;
  const int kinds = draw(random, 1, 3), layers = draw(random, 1, sizes.layers);
  for (int l = 0; l < layers; ++l) problem.layers.push_back(draw(random, 0, kinds - 1));
  for (int form = draw(random, 1, 2); form > 0; --form) {
    SearchForm made{
        .name = cat("form ", form), .ranks = draw(random, 1, 2), .experts = draw(random, 1, 2), .kinds = {}};
    for (int kind = 0; kind < kinds; ++kind) made.kinds.push_back(drawn_layer(random, made.ranks, sizes.ways));
    problem.forms.push_back(std::move(made));
  }
  return problem;
}

// All candidates of a problem, by nested loops.
class AllCandidates {
 public:
  explicit AllCandidates(const SearchProblem& problem) : problem_(problem), size_(std::ssize(problem.layers)) {
    SearchCandidate one;
    for (one.form = 0; one.form < problem.forms.size(); ++one.form) {
      for (int64_t at = 1; at <= problem.ranks; ++at) {
        one.copies = at;
        for (one.stages = 1; one.stages <= size_; ++one.stages) add_rows(one);
      }
    }
  }

  // By form, copies, stages and schedule, the fastest cost within so many bytes, and within those of the other memory;
  // without `all`, of schedules that are chosen unasked.
  std::vector<double> least(double bytes, bool all) const {
    std::map<std::tuple<size_t, const PipelineRow*, int, int, int64_t>, double> seconds;
    for (const auto& [candidate, costs] : costs_) {
      const bool asked = candidate.row->name == "gpipe" || candidate.row->name == "one_more_forward";
      if (asked && !all) continue;
      for (const SearchCost& cost : costs) {
        if (cost.bytes > bytes || (problem_.beside_bytes > 0 && cost.beside > problem_.beside_bytes)) continue;
        const auto [known, is_new] = seconds.emplace(
            std::tuple(candidate.form, candidate.row, candidate.stages, candidate.chunks, candidate.copies),
            cost.seconds);
        known->second = std::min(known->second, cost.seconds);
      }
    }
    std::vector<double> out;
    for (const auto& [candidate, least] : seconds) out.push_back(least);
    std::ranges::sort(out);
    return out;
  }

  double bytes_at(double share) const {
    std::vector<double> bytes;
    for (const auto& [candidate, costs] : costs_) {
      for (const SearchCost& cost : costs) bytes.push_back(cost.bytes);
    }
    std::ranges::sort(bytes);
    return bytes.empty() ? 0 : bytes[static_cast<size_t>(share * static_cast<double>(bytes.size() - 1))];
  }

 private:
  void add_rows(SearchCandidate one) {
    for (const PipelineRow& row : pipeline_table().rows) {
      one.row = &row;
      for (one.chunks = 1; one.chunks <= 4; ++one.chunks) {
        for (one.micro_batches = 1; one.micro_batches <= problem_.batch; ++one.micro_batches) add_memory(one);
      }
    }
  }

  void add_memory(SearchCandidate one) {
    for (const auto shards :
         {SearchShards::nothing, SearchShards::states, SearchShards::gradients, SearchShards::weights}) {
      one.shards = shards;
      for (const auto offload : {SearchOffload::nothing, SearchOffload::states, SearchOffload::weights}) {
        one.offload = offload;
        if (!is_possible(problem_, one)) continue;
        costs_.emplace_back(one, std::vector<SearchCost>());
        one.begins.assign(1, 0);
        add_begins(one);
      }
    }
  }

  void add_begins(SearchCandidate& one) {
    if (std::ssize(one.begins) == one.shape().stages()) {
      one.again.assign(problem_.layers.size(), 0);
      add_again(one, 0);
      return;
    }
    for (int next = one.begins.back() + 1; next < size_; ++next) {
      one.begins.push_back(next);
      add_begins(one);
      one.begins.pop_back();
    }
  }

  void add_again(SearchCandidate& one, int layer) {
    if (layer == size_) {
      costs_.back().second.push_back(cost_of(problem_, one));
      return;
    }
    const SearchLayer& kind = problem_.forms[one.form].kinds[problem_.layers[layer]];
    for (int way = 0; way <= std::ssize(kind.again); ++way) {
      one.again[layer] = way;
      add_again(one, layer + 1);
    }
  }

  const SearchProblem& problem_;
  const int size_;
  std::vector<std::pair<SearchCandidate, std::vector<SearchCost>>> costs_;
};

// Whether there is one.
bool expect_best(const SearchProblem& problem, const AllCandidates& all, const std::string& text) {
  const double bytes = problem.bytes > 0 ? problem.bytes : all.bytes_at(1);
  const std::vector<double> expected = all.least(bytes, false);
  const SearchResult result = search_plans(problem);
  EXPECT_TRUE(result.finished) << text;
  EXPECT_EQ(result.best.size(), std::min<size_t>(expected.size(), 3)) << text;
  for (size_t i = 0; i < std::min(result.best.size(), expected.size()); ++i) {
    const SearchFound& found = result.best[i];
    const double slack = 1e-9 * expected[i];
    EXPECT_NEAR(found.cost.seconds, expected[i], slack) << text << ", " << print_candidate(problem, found.candidate);
    EXPECT_LE(found.cost.bytes, bytes) << text;
    if (problem.beside_bytes > 0) EXPECT_LE(found.cost.beside, problem.beside_bytes) << text;
    EXPECT_TRUE(is_possible(problem, found.candidate)) << text;
  }
  if (result.best.empty() || expected.empty()) return false;
  EXPECT_NEAR(result.least_seconds, expected.front(), 1e-9 * expected.front()) << text;
  // Schedules that are left out are not faster.
  EXPECT_GE(all.least(bytes, true).front(), expected.front() * (1 - 1e-9)) << text;
  return true;
}

// How many limits of so many problems have a plan.
int compare_drawn(unsigned seed, int problems, const Sizes& sizes) {
  std::mt19937 random(seed);
  int found = 0;
  for (int n = 0; n < problems && !testing::Test::HasFailure(); ++n) {
    SearchProblem problem = drawn(random, sizes);
    const AllCandidates all(problem);
    // Without a limit, with one that most candidates are over, and with one that none keeps to. Rounding moves no
    // candidate over a limit.
    for (const double share : {1.0, 0.4, 0.1, 0.0}) {
      problem.bytes = share == 1 ? 0 : all.bytes_at(share) + (share == 0 ? -0.0123 : 0.0123);
      if (problem.bytes < 0) continue;
      found += expect_best(problem, all, cat("problem ", n, ", ", share)) ? 1 : 0;
    }
  }
  return found;
}

TEST(Search, FindsTheBestOfAllCandidates) {
  EXPECT_GT(compare_drawn(11, 1000, {.ranks = {1, 2, 4}, .batches = {2, 4}, .layers = 3, .ways = 1}), 2000);
}

TEST(Search, FindsTheBestOfManyCandidates) {
  EXPECT_GT(compare_drawn(12, 20, {.ranks = {3, 6, 8}, .batches = {6, 8}, .layers = 5, .ways = 2}), 10);
}

TEST(LongSearch, FindsTheBestOfAllCandidatesOf10000Problems) {
  EXPECT_GT(compare_drawn(13, 9000, {.ranks = {1, 2, 3, 4}, .batches = {2, 4, 6}, .layers = 4, .ways = 2}), 9000);
  EXPECT_GT(compare_drawn(14, 1000, {.ranks = {3, 4, 6, 8}, .batches = {4, 6, 8}, .layers = 5, .ways = 2}), 1000);
}

// Two layers, of which the first has weights and the second weights of experts, each so few that a sum over copies
// takes a second, of which nothing is hidden. The other form has none and takes longer by this share.
SearchProblem apart(double seconds, SearchShards shards, double buckets, double longer, SearchCandidate& first) {
  Machine machine = processor_core();
  machine.links = {{.ranks = 0, .bandwidth = 1e9, .seconds = 1}};
  machine.memories = {{Machine::Memory::Kind::device, 1e9}, {Machine::Memory::Kind::host, 1e9}};
  SearchProblem problem{.cost = CostModel(machine)};
  problem.ranks = problem.batch = 4;
  problem.buckets = buckets;
  problem.layers = {0, 1};
  SearchLayer plain{.forward = {0, seconds / 4}, .backward = {0, 3 * seconds / 4}};
  SearchLayer weights = plain, experts = plain;
  weights.weights = experts.expert_weights = 1;
  problem.forms = {{.name = "with weights", .kinds = {weights, experts}}};
  first = {.row = find_pipeline("1F1B"), .stages = 2, .copies = 2, .micro_batches = 2, .shards = shards};
  first.begins = {0, 1};
  first.again = {0, 0};
  // Two stages that take as long take as long as three calls of each.
  plain.forward.sample = 0;
  plain.backward.sample = longer * cost_of(problem, first).seconds / 3;
  problem.forms.push_back({.name = "without", .kinds = {plain, plain}});
  return problem;
}

// No stage has both kinds of weights, so no bound of a step may add up their latencies. With one plan that is wanted a
// bound that is too high leaves out the best of all.
void expect_apart(double seconds, SearchShards shards, double buckets) {
  SearchCandidate first;
  const SearchProblem problem = apart(seconds, shards, buckets, 1.1, first);
  const SearchSpace space{.rows = {first.row},
                          .stages = {2},
                          .micro_batches = {2},
                          .shards = {shards},
                          .offload = {SearchOffload::nothing}};
  const SearchResult result = search_plans(problem, space, {.count = 1});
  const std::string text = cat("level ", static_cast<int>(shards), ", ", buckets, " buckets");
  ASSERT_EQ(result.best.size(), 1u) << text;
  EXPECT_EQ(result.best.front().candidate.form, 0u) << text;
  EXPECT_NEAR(result.best.front().cost.seconds, cost_of(problem, first).seconds, 1e-6) << text;
  EXPECT_TRUE(result.finished) << text;
}

TEST(Search, BoundsNoStageByWeightsAndExpertsAtOnce) {
  for (const auto shards :
       {SearchShards::nothing, SearchShards::states, SearchShards::gradients, SearchShards::weights})
    expect_apart(1, shards, 1);
  // What is behind the last call counts for nothing, so the longest stage alone decides.
  expect_apart(3, SearchShards::weights, 1e12);
}

// Within so many seconds, and within 1 % of the best there is. `most`: of the time that all devices take at their rate.
void expect_soon(const SearchProblem& problem, double seconds, double flops, double most) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  seconds *= 20;
#endif
  const std::clock_t begin = std::clock();  // of the process: other programs take no part
  const SearchResult result = search_plans(problem);
  EXPECT_LE(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, seconds);
  ASSERT_EQ(result.best.size(), 3u);
  const SearchFound& best = result.best.front();
  const std::string text = print_candidate(problem, best.candidate);
  EXPECT_TRUE(result.finished) << result.searched << " of " << result.shapes;
  EXPECT_LE(best.cost.seconds, 1.01 * result.least_seconds) << text;
  EXPECT_LE(best.cost.bytes, problem.bytes) << text;
  const double least = flops / (400e12 * static_cast<double>(problem.ranks));
  EXPECT_GT(best.cost.seconds, least) << text;
  EXPECT_LT(best.cost.seconds, most * least) << text;
}

// As fast as the field's own layouts are known to be.
TEST(Search, TakesASecondFor175BillionParametersOn1024Devices) {
  expect_soon(gpt_on_gpus(96, 12288, 1024, 1536), 1, 6 * 175e9 * 1536 * 2048, 1.6);
}

TEST(LongSearch, TakesTenSecondsFor1000LayersOn16384Devices) {
  constexpr double parameters = 1000.0 * 12 * 12288 * 12288;
  expect_soon(gpt_on_gpus(1000, 12288, 16384, 8192), 10, 6 * parameters * 8192 * 2048, 2);
}

TEST(Search, KeepsWhatIsFixed) {
  const SearchProblem problem = gpt_on_gpus(24, 4096, 32, 64);
  const SearchSpace space{.rows = {find_pipeline("ZB-H1")},
                          .stages = {4},
                          .micro_batches = {8},
                          .shards = {SearchShards::states},
                          .offload = {SearchOffload::nothing}};
  const SearchResult result = search_plans(problem, space);
  ASSERT_FALSE(result.best.empty());
  for (const SearchFound& found : result.best) {
    EXPECT_EQ(found.candidate.row, space.rows.front());
    EXPECT_EQ(found.candidate.stages, 4);
    EXPECT_EQ(found.candidate.micro_batches, 8);
    EXPECT_EQ(found.candidate.shards, SearchShards::states);
    EXPECT_EQ(found.candidate.offload, SearchOffload::nothing);
  }
  EXPECT_GE(result.best.front().cost.seconds, search_plans(problem).best.front().cost.seconds);
}

TEST(Search, LessMemoryNeverTakesLessTime) {
  const SearchProblem problem = gpt_on_gpus(24, 4096, 16, 64);
  const std::vector<SearchFound> front = time_over_memory(problem);
  ASSERT_GT(front.size(), 3u);
  for (size_t i = 1; i < front.size(); ++i) {
    EXPECT_LE(front[i].cost.bytes, 0.8001 * front[i - 1].cost.bytes);
    EXPECT_GE(front[i].cost.seconds, front[i - 1].cost.seconds);
  }
  EXPECT_NE(what_decides(front.front().cost, front.back().cost), "");
}

TEST(Search, SaysWhatACandidateIs) {
  const SearchProblem problem = gpt_on_gpus(4, 1024, 16, 64);
  SearchCandidate one{.form = 1, .row = find_pipeline("1F1B"), .stages = 2, .copies = 4, .micro_batches = 8};
  one.shards = SearchShards::gradients;
  one.begins = {0, 3};
  one.again = {0, 2, 0, 0, 0, 0};
  EXPECT_EQ(print_candidate(problem, one),
            "4 copies of 2 stages (1F1B), split of 2, 8 micro-batches, zero.level = v1, 1 of 6 layers computed again");
}

}  // namespace
}  // namespace epl::search_test
