#include "bench/plans/compare.h"

#include <algorithm>
#include <ctime>

#include "bench/plans/defaults.h"
#include "core/strategy/search_step.h"

namespace epl::plans {
namespace {

constexpr size_t simulated = 24;  // of what a search finds

Tried tried(const std::string& name, const SearchProblem& problem, const SearchCandidate& candidate) {
  return {name, candidate, simulate_step(problem, candidate).seconds, cost_of(problem, candidate).seconds};
}

}  // namespace

Result<Tried> pick(const SearchProblem& problem) {
  SearchLimits limits;
  limits.count = simulated;
  limits.by_memory = true;
  const SearchResult found = search_plans(problem, {}, limits);
  if (found.best.empty()) return invalid("no plan fits");
  const SearchCandidate best = by_simulated_steps(problem, found.best).front().candidate;
  return tried(print_candidate(problem, best), problem, best);
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
