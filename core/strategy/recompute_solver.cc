#include "core/strategy/recompute_solver.h"

#include <algorithm>
#include <limits>

#include "core/strategy/recompute_join.h"

namespace epl {
namespace {

// How exact the least bytes are, and how many ways to share bytes out are tried where micro-batches are in flight.
constexpr double least_within = 0.005;
constexpr int parts_of_kept = 12;
// Nodes and steps that are looked at to improve a choice: some tenths of a second.
constexpr double most_looks = 2e7;

double all_bytes(const RecomputeProblem& problem) {
  double bytes = 0;
  for (const double one : problem.bytes) bytes += one;
  return bytes;
}

}  // namespace

RecomputeSolver::RecomputeSolver(const RecomputeProblem& problem)
    : problem_(problem), blocks_(blocks_of(problem)), most_(cost_of(problem, ComputedAgain(problem.nodes.size())).peak) {
  const int parts = problem.in_flight > 1 ? parts_of_kept : 1;
  for (int part = 1; part < parts; ++part) kept_parts_.push_back(all_bytes(problem) * part / parts);
  kept_parts_.push_back(all_bytes(problem));
}

// The steps of blocks need not come one block after another. What is found then may not fit, and less is tried.
std::optional<ComputedAgain> RecomputeSolver::joined(double bytes) const {
  std::optional<ComputedAgain> best;
  double least = std::numeric_limits<double>::infinity();
  for (const double kept : kept_parts_) {
    double room = bytes;
    for (int tries = 0; tries < 4; ++tries) {
      const RecomputeLimit limit{
          .bytes = room - problem_.always, .kept = kept, .others = problem_.in_flight - 1, .bound = false};
      std::optional<JoinedWays> found = join_blocks(problem_, blocks_, limit);
      if (!found || found->seconds >= least) break;
      const double above = cost_of(problem_, found->again).peak - bytes;
      if (above <= 0) {
        least = found->seconds;
        best = std::move(found->again);
        break;
      }
      room -= above;
    }
  }
  return best;
}

double RecomputeSolver::least_seconds(double bytes) const {
  double least = std::numeric_limits<double>::infinity(), before = 0;
  for (const double kept : kept_parts_) {
    const RecomputeLimit limit{.bytes = bytes - problem_.always,
                               .least_kept = before,
                               .kept = kept,
                               .others = problem_.in_flight - 1,
                               .bound = true};
    const std::optional<JoinedWays> found = join_blocks(problem_, blocks_, limit);
    if (found) least = std::min(least, found->seconds);
    before = kept;
  }
  return least;
}

// Nothing is computed again that need not be, and no node in the place of a faster one.
void RecomputeSolver::improve(ComputedAgain& again, double bytes) const {
  double looks = most_looks / static_cast<double>(problem_.nodes.size() + problem_.steps.size());
  RecomputeCost now = cost_of(problem_, again);
  const auto better = [&] {
    const RecomputeCost cost = cost_of(problem_, again);
    --looks;
    if (cost.peak > bytes || cost.seconds >= now.seconds) return false;
    now = cost;
    return true;
  };
  const size_t nodes = problem_.nodes.size();
  const bool searched = std::ranges::all_of(blocks_, [](const RecomputeBlock& block) { return block.ways->all; });
  const auto replaced = [&](size_t n) {
    for (size_t m = 0; m < nodes && looks > 0; ++m) {
      if (m == n || again[m] || !problem_.nodes[m].may) continue;
      again[m] = true;
      if (better()) return true;
      again[m] = false;
    }
    return false;
  };
  for (bool changed = true; changed && looks > 0;) {
    changed = false;
    for (size_t n = 0; n < nodes && looks > 0; ++n) {
      if (!again[n]) continue;
      again[n] = false;
      const bool done = better() || (!searched && replaced(n));
      again[n] = !done;
      changed = changed || done;
    }
  }
}

std::optional<RecomputeChoice> RecomputeSolver::within(double bytes) const {
  RecomputeChoice choice{.again = ComputedAgain(problem_.nodes.size())};
  if (most_ > bytes) {
    std::optional<ComputedAgain> found = joined(bytes);
    if (!found) return {};
    choice.again = *std::move(found);
    improve(choice.again, bytes);
    choice.least_seconds = least_seconds(bytes);
  }
  const RecomputeCost cost = cost_of(problem_, choice.again);
  choice.seconds = cost.seconds;
  choice.peak = cost.peak;
  choice.least_seconds = std::min(choice.least_seconds, choice.seconds);
  return choice;
}

RecomputeChoice RecomputeSolver::least() const {
  double fits = most_, fails = problem_.always;
  while (fits - fails > least_within * fits) {
    const double middle = (fits + fails) / 2;
    if (const std::optional<ComputedAgain> found = joined(middle)) {
      fits = std::min(middle, cost_of(problem_, *found).peak);
    } else {
      fails = middle;
    }
  }
  std::optional<RecomputeChoice> found = within(fits);
  return found ? *std::move(found) : *within(most_);
}

}  // namespace epl
