// What is computed again within so many bytes: against every choice there is where nodes are few, against the least
// times that a mixed integer program has proven for up to 60 nodes (recompute/generate.py), and 2,000 nodes in time.
#include "core/strategy/recompute_solver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <random>
#include <set>

namespace epl::recompute_solver_test {
namespace {

constexpr double of_the_least = 1.02;

int draw(std::mt19937& random, int from, int to) {
  return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
}

// Runs the forward pass, and the backward pass with what it computes again, event by event.
class Replay {
 public:
  Replay(const RecomputeProblem& problem, const ComputedAgain& again) : problem_(problem), again_(again) {
    for (size_t n = 0; n < problem.nodes.size(); ++n) {
      for (const int v : problem.nodes[n].inputs) read(v, false);
      for (const int v : problem.nodes[n].outputs) write(v);
      end_event(0);
    }
    forward_end_ = events_.size();
    made_.assign(problem.nodes.size(), false);
    for (const RecomputeProblem::Step& step : problem.steps) {
      for (const int v : step.takes) make(v);
      for (const int v : step.takes) read(v, true);
      end_event(step.bytes);
    }
  }

  RecomputeCost cost() const {
    RecomputeCost cost{.seconds = seconds_};
    double kept = 0;
    for (const Copy& copy : copies_) kept += copy.first < forward_end_ && copy.again ? bytes(copy) : 0;
    for (size_t e = 0; e < events_.size(); ++e) {
      if (!events_[e].counts) continue;
      double now = problem_.always + events_[e].bytes + (problem_.in_flight - 1) * kept;
      for (const Copy& copy : copies_) now += copy.first <= e && e <= copy.last ? bytes(copy) : 0;
      cost.peak = std::max(cost.peak, now);
    }
    return cost;
  }

 private:
  struct Event {
    double bytes = 0;
    bool counts = false;
  };
  // Of a result: from the event that makes it to the last that reads it. `again`: the backward pass reads it.
  struct Copy {
    int value = 0;
    size_t first = 0, last = 0;
    bool again = false;
  };
  double bytes(const Copy& copy) const { return problem_.bytes[static_cast<size_t>(copy.value)]; }

  void end_event(double bytes) { events_.push_back({bytes, true}); }
  void write(int v) {
    copies_.push_back({v, events_.size(), events_.size(), false});
    current_.resize(std::max<size_t>(current_.size(), static_cast<size_t>(v) + 1));
    current_[static_cast<size_t>(v)] = copies_.size() - 1;
  }
  void read(int v, bool again) {
    Copy& copy = copies_[current_[static_cast<size_t>(v)]];
    copy.last = events_.size();
    copy.again = copy.again || again;
  }

  void make(int v) {
    size_t n = 0;
    while (std::ranges::find(problem_.nodes[n].outputs, v) == problem_.nodes[n].outputs.end()) ++n;
    if (!again_[n] || made_[n]) return;
    made_[n] = true;
    for (const int input : problem_.nodes[n].inputs) make(input);
    for (const int input : problem_.nodes[n].inputs) read(input, true);
    for (const int output : problem_.nodes[n].outputs) write(output);
    events_.push_back({});  // nobody looks at memory here
    seconds_ += problem_.nodes[n].seconds;
  }

  const RecomputeProblem& problem_;
  const ComputedAgain& again_;
  std::vector<Event> events_;
  std::vector<Copy> copies_;
  std::vector<size_t> current_;
  std::vector<bool> made_;
  size_t forward_end_ = 0;
  double seconds_ = 0;
};

// Any graph: what a node takes is drawn, and what its step takes of its operands and results.
RecomputeProblem drawn(std::mt19937& random, int nodes) {
  RecomputeProblem problem;
  problem.always = draw(random, 0, 10);
  std::vector<int> values;
  for (int n = 0; n < nodes; ++n) {
    RecomputeProblem::Node node{.seconds = static_cast<double>(draw(random, 1, 20)), .may = draw(random, 0, 7) > 0};
    std::set<int> inputs;
    for (int i = draw(random, n > 0, 2); i > 0 && !values.empty(); --i) {
      const int back = draw(random, 0, 3) > 0 ? draw(random, 1, 2) : draw(random, 1, 6);
      inputs.insert(values[static_cast<size_t>(std::max<int>(0, static_cast<int>(values.size()) - back))]);
    }
    node.inputs.assign(inputs.begin(), inputs.end());
    for (int o = draw(random, 0, 3) == 0 ? 2 : 1; o > 0; --o) {
      node.outputs.push_back(static_cast<int>(problem.bytes.size()));
      values.push_back(node.outputs.back());
      problem.bytes.push_back(draw(random, 1, 30));
    }
    problem.nodes.push_back(std::move(node));
  }
  for (int n = nodes - 1; n >= 0; --n) {
    RecomputeProblem::Step step{.bytes = static_cast<double>(draw(random, 0, 15)), .takes = {}};
    const RecomputeProblem::Node& node = problem.nodes[static_cast<size_t>(n)];
    for (const auto* some : {&node.inputs, &node.outputs}) {
      for (const int v : *some) {
        if (draw(random, 0, 2) > 0) step.takes.push_back(v);
      }
    }
    problem.steps.push_back(std::move(step));
  }
  return problem;
}

// By every choice there is.
std::vector<RecomputeCost> all_costs(const RecomputeProblem& problem) {
  std::vector<size_t> may;
  for (size_t n = 0; n < problem.nodes.size(); ++n) {
    if (problem.nodes[n].may) may.push_back(n);
  }
  std::vector<RecomputeCost> costs;
  ComputedAgain again(problem.nodes.size());
  for (uint32_t set = 0; set < uint32_t{1} << may.size(); ++set) {
    for (size_t i = 0; i < may.size(); ++i) again[may[i]] = (set >> i & 1) != 0;
    costs.push_back(Replay(problem, again).cost());
  }
  return costs;
}

void expect_least(const RecomputeProblem& problem, const std::vector<RecomputeCost>& costs, const std::string& name) {
  const RecomputeSolver solver(problem);
  const double least_peak = std::ranges::min(costs, {}, &RecomputeCost::peak).peak;
  EXPECT_EQ(solver.most(), costs.front().peak) << name;
  for (int part = 0; part <= 8; ++part) {
    const double bytes = least_peak + (costs.front().peak - least_peak) * part / 8;
    double least = 1e300;
    for (const RecomputeCost& cost : costs) least = cost.peak <= bytes ? std::min(least, cost.seconds) : least;
    const auto choice = solver.within(bytes);
    ASSERT_TRUE(choice.has_value()) << name << ", " << bytes << " bytes";
    const RecomputeCost cost = Replay(problem, choice->again).cost();
    EXPECT_LE(cost.peak, bytes) << name;
    EXPECT_EQ(cost.peak, choice->peak) << name;
    EXPECT_EQ(cost.seconds, choice->seconds) << name;
    EXPECT_LE(choice->seconds, least * of_the_least) << name << ", " << bytes << " bytes";
    EXPECT_LE(choice->least_seconds, least) << name;
  }
  EXPECT_FALSE(solver.within(least_peak - 1).has_value()) << name;
  EXPECT_LE(solver.least().peak, least_peak * 1.01) << name;
}

TEST(RecomputeSolver, FindsTheLeastTimeOfAllChoices) {
  std::mt19937 random(3);
  for (int graph = 0; graph < 150; ++graph) {
    const RecomputeProblem problem = drawn(random, draw(random, 1, 9));
    expect_least(problem, all_costs(problem), "graph " + std::to_string(graph));
  }
  for (int graph = 0; graph < 2; ++graph) {
    const RecomputeProblem problem = drawn(random, 13 + graph);
    expect_least(problem, all_costs(problem), "larger graph " + std::to_string(graph));
  }
}

TEST(RecomputeSolver, CountsWhatSeveralMicroBatchesKeep) {
  std::mt19937 random(4);
  for (int graph = 0; graph < 60; ++graph) {
    RecomputeProblem problem = drawn(random, draw(random, 1, 8));
    problem.in_flight = draw(random, 2, 4);
    expect_least(problem, all_costs(problem), "graph " + std::to_string(graph));
  }
}

// What generate.py has written.
struct Proven {
  std::string name;
  RecomputeProblem problem;
  std::vector<std::pair<double, double>> least;  // bytes, and seconds
};
std::vector<int> read_list(std::istream& in) {
  size_t size = 0;
  in >> size;
  std::vector<int> out(size);
  for (int& one : out) in >> one;
  return out;
}
std::vector<Proven> read_proven() {
  std::ifstream in(std::string(EPL_SOURCE_DIR) + "/tests/strategy/recompute/problems.txt");
  std::vector<Proven> all;
  for (std::string word; in >> word;) {
    Proven one;
    size_t values = 0, nodes = 0, steps = 0, known = 0;
    in >> one.name >> one.problem.in_flight >> values >> nodes >> steps;
    one.problem.bytes.resize(values);
    for (double& bytes : one.problem.bytes) in >> bytes;
    for (size_t n = 0; n < nodes; ++n) {
      RecomputeProblem::Node node;
      in >> node.seconds >> node.may;
      node.inputs = read_list(in);
      node.outputs = read_list(in);
      one.problem.nodes.push_back(std::move(node));
    }
    for (size_t s = 0; s < steps; ++s) {
      RecomputeProblem::Step step;
      in >> step.bytes;
      step.takes = read_list(in);
      one.problem.steps.push_back(std::move(step));
    }
    in >> word >> known;
    one.least.resize(known);
    for (auto& [bytes, seconds] : one.least) in >> bytes >> seconds;
    all.push_back(std::move(one));
  }
  return all;
}

TEST(RecomputeSolver, FindsWhatAMixedIntegerProgramHasProven) {
  const std::vector<Proven> all = read_proven();
  ASSERT_GE(all.size(), 10u);
  size_t largest = 0;
  for (const Proven& one : all) {
    largest = std::max(largest, one.problem.nodes.size());
    const RecomputeSolver solver(one.problem);
    for (const auto& [bytes, least] : one.least) {
      const auto choice = solver.within(bytes);
      ASSERT_TRUE(choice.has_value()) << one.name << ", " << bytes << " bytes";
      const RecomputeCost cost = Replay(one.problem, choice->again).cost();
      EXPECT_LE(cost.peak, bytes) << one.name;
      EXPECT_LE(cost.seconds, least * of_the_least) << one.name << ", " << bytes << " bytes";
      EXPECT_GE(cost.seconds, least) << one.name << ", " << bytes << " bytes: the program has proven nothing";
      EXPECT_LE(choice->least_seconds, least) << one.name;
    }
  }
  EXPECT_GE(largest, 55u);
}

// Blocks of 14 nodes as a transformer has them, alike or each with times and bytes of its own.
RecomputeProblem deep(int nodes, bool alike) {
  std::mt19937 random(6);
  RecomputeProblem problem;
  const auto add = [&](double seconds, std::vector<int> inputs, double bytes) {
    const double factor = alike ? 1 : draw(random, 50, 200) / 100.0;
    problem.nodes.push_back({seconds * factor, true, std::move(inputs), {static_cast<int>(problem.bytes.size())}});
    problem.bytes.push_back(std::round(bytes * factor));
    return problem.nodes.back().outputs[0];
  };
  int x = add(1, {}, 100);
  while (static_cast<int>(problem.nodes.size()) < nodes) {
    const int norm = add(2, {x}, 100), q = add(10, {norm}, 100), k = add(10, {norm}, 100), v = add(10, {norm}, 100);
    const int attention = add(30, {q, k, v}, 100), mixed = add(10, {attention}, 100), r = add(1, {x, mixed}, 100);
    const int norm2 = add(2, {r}, 100), wide = add(40, {norm2}, 400), act = add(6, {wide}, 400);
    const int back = add(40, {act}, 100), dropped = add(2, {back}, 100), scaled = add(1, {dropped}, 100);
    x = add(1, {r, scaled}, 100);
  }
  for (size_t n = problem.nodes.size(); n-- > 0;) {
    std::vector<int> takes = problem.nodes[n].inputs;
    if (problem.nodes[n].seconds > 25) takes.push_back(problem.nodes[n].outputs[0]);
    problem.steps.push_back({200, problem.nodes[n].seconds == 1 ? std::vector<int>() : takes});
    problem.steps.push_back({300, {}});
  }
  return problem;
}

TEST(RecomputeSolver, TakesTwoSecondsFor2000Nodes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr double slower = 20;
#else
  constexpr double slower = 1;
#endif
  for (const bool alike : {true, false}) {
    const RecomputeProblem problem = deep(2000, alike);
    for (const double share : {0.15, 0.3, 0.6}) {
      const std::clock_t begin = std::clock();  // of the process: other programs take no part
      const RecomputeSolver solver(problem);
      const auto choice = solver.within(share * solver.most());
      const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
      EXPECT_LE(took, 2 * slower) << alike << ", " << share;
      ASSERT_TRUE(choice.has_value()) << alike << ", " << share;
      EXPECT_LE(choice->peak, share * solver.most());
      EXPECT_LE(choice->seconds, 1.12 * choice->least_seconds) << alike << ", " << share;
      if (alike) {
        EXPECT_LE(different_blocks(solver.blocks()), 12);
      }
    }
  }
}

TEST(RecomputeSolver, MoreBytesNeverTakeLonger) {
  for (const bool alike : {true, false}) {
    const RecomputeProblem problem = deep(60, alike);
    const RecomputeSolver solver(problem);
    const double least = solver.least().peak;
    double before = 1e300;
    for (int part = 0; part <= 16; ++part) {
      const double bytes = least + (solver.most() - least) * part / 16;
      const auto choice = solver.within(bytes);
      ASSERT_TRUE(choice.has_value()) << part;
      EXPECT_LE(choice->peak, bytes);
      EXPECT_LE(choice->seconds, before) << part;
      before = choice->seconds;
    }
    EXPECT_EQ(before, 0);
  }
}

// A GPT with a head. Gradients of weights stay.
RecomputeProblem gpt(int layers) {
  RecomputeProblem problem;
  const auto add = [&](double seconds, std::vector<int> inputs, double bytes) {
    problem.nodes.push_back({seconds, true, std::move(inputs), {static_cast<int>(problem.bytes.size())}});
    problem.bytes.push_back(bytes);
    return problem.nodes.back().outputs[0];
  };
  constexpr double sum = 1.5, mix = 20;
  int x = add(2, {}, 60);
  for (int layer = 0; layer < layers; ++layer) {
    const int norm = add(1, {x}, 60), qkv = add(90, {norm}, 180);
    std::vector<int> heads;
    for (int third = 0; third < 3; ++third) heads.push_back(add(1, {add(2, {qkv}, 60)}, 60));
    const int rows = add(1, {add(mix, heads, 60)}, 60), r = add(sum, {x, add(30, {rows}, 60)}, 60);
    const int wide = add(120, {add(1, {r}, 60)}, 240), active = add(4, {wide}, 240);
    x = add(sum, {r, add(120, {active}, 60)}, 60);
  }
  add(2000, {add(1, {x}, 60)}, 4000);
  double gradients = 0;
  for (size_t n = problem.nodes.size(); n-- > 0;) {
    const RecomputeProblem::Node& node = problem.nodes[n];
    const bool head = n + 1 == problem.nodes.size(), product = node.seconds >= 30;
    gradients += head ? 1500 : product ? node.seconds * 0.78 : 0;
    std::vector<int> takes = node.seconds == sum ? std::vector<int>() : node.inputs;
    if (node.seconds == mix) takes.push_back(node.outputs[0]);
    problem.steps.push_back({gradients + (head ? 4060 : 300), std::move(takes)});
  }
  return problem;
}

// Between when an early result is there and the steps of its block, what others of these steps are computed from is
// there as well. A solver that takes it for gone proposes what does not fit, finds nothing else, or has no good bound.
TEST(RecomputeSolver, KnowsWhatIsThereBesideEarlyResults) {
  for (const int layers : {2, 4, 12}) {
    RecomputeProblem problem = gpt(layers);
    const double without = RecomputeSolver(problem).least().peak;
    // The head, and what each layer gives to the next one.
    EXPECT_LT(without, 5800 + 60 * layers) << layers;
    for (problem.always = 0; problem.always < 20'000; problem.always += 15'000) {
      const RecomputeSolver solver(problem);
      const RecomputeChoice least = solver.least();
      EXPECT_LE(least.peak, 1.01 * (problem.always + without)) << layers;
      EXPECT_LE(least.seconds, 1.02 * least.least_seconds) << layers;
      for (const double share : {0.2, 0.5}) {
        const auto choice = solver.within(least.peak + share * (solver.most() - least.peak));
        ASSERT_TRUE(choice.has_value()) << layers;
        EXPECT_LE(choice->seconds, 1.02 * choice->least_seconds) << layers << ", " << share;
      }
    }
  }
}

TEST(RecomputeSolver, TakesProblemsWithoutNodes) {
  RecomputeProblem problem;
  EXPECT_EQ(RecomputeSolver(problem).least().peak, 0);
  problem.always = 7;
  problem.steps.push_back({5, {}});
  EXPECT_EQ(RecomputeSolver(problem).most(), 12);
  EXPECT_EQ(RecomputeSolver(problem).least().peak, 12);
}

}  // namespace
}  // namespace epl::recompute_solver_test
