#include "core/strategy/recompute_solver.h"

#include <algorithm>
#include <limits>

#include "core/strategy/recompute_join.h"

namespace epl {
namespace {

// How many times more a byte is worth where nothing fits that is worth most.
constexpr double scarce = 100;
// How far behind the best a part of a choice may be, of all its seconds.
constexpr double close = 0.05;
// How exact the least bytes are.
constexpr double least_within = 0.005;
// Where micro-batches are in flight, how many bytes are tried that each may keep at most: many where that takes no
// time.
constexpr size_t few_nodes = 12;
constexpr int parts_of_few = 256, parts_of_many = 16;
// Nodes and steps that are looked at to improve a choice: some tenths of a second.
constexpr double most_looks = 2e7;

// That a micro-batch may keep at most, to be tried. All of them keep it at the end of the forward pass.
std::vector<double> kept_parts(const RecomputeProblem& problem, double bytes) {
  if (problem.in_flight <= 1) return {std::numeric_limits<double>::infinity()};
  const int parts = problem.nodes.size() <= few_nodes ? parts_of_few : parts_of_many;
  std::vector<double> kept;
  for (int part = 0; part <= parts; ++part) kept.push_back((bytes - problem.always) / problem.in_flight * part / parts);
  return kept;
}

}  // namespace

RecomputeSolver::RecomputeSolver(const RecomputeProblem& problem)
    : problem_(problem),
      blocks_(blocks_of(problem)),
      most_(cost_of(problem, ComputedAgain(problem.nodes.size())).peak) {}

// What is found at first may not fit: other micro-batches may keep more than was said, and the steps of blocks need not
// come one block after another. Then less is tried.
std::optional<RecomputeSolver::Found> RecomputeSolver::joined(double bytes, double price, double slack) const {
  std::optional<Found> best;
  double least = std::numeric_limits<double>::infinity(), bound = least, before = 0;
  for (const double kept : kept_parts(problem_, bytes)) {
    RecomputeLimit limit{.bytes = bytes - problem_.always,
                         .least_kept = before,
                         .kept = kept,
                         .others = problem_.in_flight - 1,
                         .price = price,
                         .slack = slack};
    for (int tries = 0; tries < 4; ++tries) {
      std::optional<JoinedWays> found = join_blocks(problem_, blocks_, limit);
      if (!found) break;
      if (tries == 0) bound = std::min(bound, found->least ? found->seconds : 0);
      if (found->seconds >= least) break;
      const double above = cost_of(problem_, found->again).peak - bytes;
      if (above <= 0) {
        least = found->seconds;
        best = Found{std::move(found->again), 0};
        break;
      }
      limit.bytes -= above;
    }
    before = kept;
  }
  if (best) best->least_seconds = bound;
  return best;
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
  if (most_ <= bytes) return priced(ComputedAgain(problem_.nodes.size()), bytes, 0, {});
  constexpr double any = std::numeric_limits<double>::infinity();
  const PricedBound bound = priced_bound(problem_, blocks_, bytes);
  std::optional<Found> found = joined(bytes, bound.price, close * bound.seconds);
  // Where bytes are dear, what is found depends on the price.
  if (!found) found = joined(bytes, scarce * bound.price, any);
  if (!found) found = joined(bytes, dearest(), any);
  if (!found) return {};
  improve(found->again, bytes);
  return priced(std::move(found->again), bytes, std::max(found->least_seconds, bound.seconds), bound);
}

RecomputeChoice RecomputeSolver::least() const {
  ComputedAgain least(problem_.nodes.size());
  double fits = most_, fails = problem_.always;
  const double price = dearest();
  while (fits - fails > least_within * fits) {
    const double middle = (fits + fails) / 2;
    if (std::optional<Found> found = joined(middle, price, std::numeric_limits<double>::infinity())) {
      least = std::move(found->again);
      fits = std::min(middle, cost_of(problem_, least).peak);
    } else {
      fails = middle;
    }
  }
  if (std::optional<RecomputeChoice> choice = within(fits)) return *std::move(choice);
  improve(least, fits);
  const PricedBound bound = priced_bound(problem_, blocks_, fits);
  return priced(std::move(least), fits, bound.seconds, bound);
}

// What a byte is worth where hardly anything fits.
double RecomputeSolver::dearest() const { return scarce * priced_bound(problem_, blocks_, most_).price; }

RecomputeChoice RecomputeSolver::priced(ComputedAgain again, double bytes, double least_seconds,
                                        const PricedBound& bound) const {
  const RecomputeCost cost = cost_of(problem_, again);
  if (least_seconds < cost.seconds)
    least_seconds = std::max(least_seconds, bound_by_all_steps(problem_, blocks_, bytes, bound, cost.seconds));
  return {.again = std::move(again),
          .seconds = cost.seconds,
          .peak = cost.peak,
          .least_seconds = std::min(least_seconds, cost.seconds)};
}

}  // namespace epl
