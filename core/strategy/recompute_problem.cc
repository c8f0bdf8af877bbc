// What a choice of nodes that are computed again costs, by one walk over all uses.
#include "core/strategy/recompute_problem.h"

#include <algorithm>
#include <limits>

namespace epl {
namespace {

constexpr int never = std::numeric_limits<int>::max();

// Bytes that come and go, by moment.
class Levels {
 public:
  explicit Levels(size_t moments) : change_(moments + 1, 0) {}
  // Both included.
  void add(double bytes, int first, int last) {
    if (last < first) return;
    change_[static_cast<size_t>(first)] += bytes;
    change_[static_cast<size_t>(last) + 1] -= bytes;
  }
  const std::vector<double>& changes() const { return change_; }

 private:
  std::vector<double> change_;
};

}  // namespace

RecomputeCost cost_of(const RecomputeProblem& problem, const ComputedAgain& again) {
  const int nodes = static_cast<int>(problem.nodes.size()), steps = static_cast<int>(problem.steps.size());
  // When a result is used last by nodes, and needed last while a step runs; when it is needed first.
  std::vector<int> used(problem.bytes.size(), -1), held(problem.bytes.size(), -1), needed(problem.bytes.size(), never);
  for (int s = steps - 1; s >= 0; --s) {
    for (const int v : problem.steps[s].takes) {
      needed[v] = s;
      held[v] = std::max(held[v], s);
    }
  }
  RecomputeCost cost;
  Levels levels(problem.nodes.size() + problem.steps.size());
  double kept = 0;
  for (int n = nodes - 1; n >= 0; --n) {
    const RecomputeProblem::Node& node = problem.nodes[n];
    int made = never;
    for (const int v : node.outputs) made = std::min(made, needed[v]);
    const bool twice = made != never && again[n];
    for (const int v : node.inputs) {
      if (used[v] < 0) used[v] = n;
      if (!twice) continue;
      needed[v] = std::min(needed[v], made);
      held[v] = std::max(held[v], made - 1);
    }
    cost.seconds += twice ? node.seconds : 0;
    for (const int v : node.outputs) {
      const bool keeps = !twice && needed[v] != never;
      levels.add(problem.bytes[v], n, keeps ? nodes - 1 : std::max(used[v], n));
      if (needed[v] != never) levels.add(problem.bytes[v], nodes + (twice ? made : 0), nodes + held[v]);
      kept += keeps ? problem.bytes[v] : 0;
    }
  }
  double now = problem.always + (problem.in_flight - 1) * kept;
  for (int at = 0; at < nodes + steps; ++at) {
    now += levels.changes()[at];
    cost.peak = std::max(cost.peak, now + (at < nodes ? 0 : problem.steps[at - nodes].bytes));
  }
  return cost;
}

}  // namespace epl
