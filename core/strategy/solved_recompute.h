// Recompute problems that have been solved. Whoever tries many strategies meets the same problem again: where values
// lie changes no problem, nor does the budget.
#pragma once

#include <list>
#include <map>
#include <optional>

#include "core/strategy/recompute_solver.h"

namespace epl {

// Not for several threads.
class SolvedRecompute {
 public:
  // As RecomputeSolver has them.
  double most(const RecomputeProblem& problem) { return known(problem).solver.most(); }
  const std::optional<RecomputeChoice>& within(const RecomputeProblem& problem, double bytes);
  const RecomputeChoice& least(const RecomputeProblem& problem);

 private:
  struct Known {
    explicit Known(const RecomputeProblem& of) : problem(of), solver(problem) {}
    Known(const Known&) = delete;
    const RecomputeProblem problem;
    const RecomputeSolver solver;
    std::map<double, std::optional<RecomputeChoice>> within;
    std::optional<RecomputeChoice> least;
  };
  Known& known(const RecomputeProblem& problem);

  std::list<Known> all_;  // the one that was asked for last comes first
};

}  // namespace epl
