#include "bench/plans/compare.h"

#include <algorithm>
#include <ctime>

#include "bench/plans/defaults.h"
#include "bench/plans/step.h"

namespace epl::plans {
namespace {

constexpr size_t simulated = 3;  // of what a search finds

Tried tried(const std::string& name, const SearchProblem& problem, const SearchCandidate& candidate) {
  return {name, candidate, simulate(problem, candidate).seconds, cost_of(problem, candidate).seconds};
}

}  // namespace

Result<Tried> pick(const SearchProblem& problem) {
  SearchLimits limits;
  limits.count = simulated;
  const SearchResult found = search_plans(problem, {}, limits);
  Tried best;
  for (const SearchFound& one : found.best) {
    Tried plan = tried(print_candidate(problem, one.candidate), problem, one.candidate);
    if (best.name.empty() || plan.seconds < best.seconds) best = std::move(plan);
  }
  if (best.name.empty()) return invalid("no plan fits");
  return best;
}

Result<Compared> compare(const Pair& pair, const std::string& folder) {
  Compared out{.pair = pair, .picked = {}, .defaults = {}};
  EPL_ASSIGN(const SearchProblem problem, problem_of(pair, folder));
  const std::clock_t begin = std::clock();
  EPL_ASSIGN(out.picked, pick(problem));
  out.search_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  for (const Default& row : defaults()) {
    const auto plan = plan_of(row, problem, host_of(pair));
    if (plan) out.defaults.push_back(tried(row.name, problem, *plan));
  }
  std::ranges::stable_sort(out.defaults, {}, &Tried::seconds);
  return out;
}

}  // namespace epl::plans
