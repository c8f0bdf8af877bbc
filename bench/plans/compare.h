// A pair judged: the plan that a search picks against the plans of all defaults, in simulated steps.
#pragma once

#include <string>
#include <vector>

#include "bench/plans/pairs.h"
#include "core/strategy/search.h"

namespace epl::plans {

// Of a simulated step.
struct Tried {
  std::string name;
  SearchCandidate candidate;
  double seconds = 0;
  double by_formula = 0;  // what cost_of says
};

struct Compared {
  Pair pair;
  Tried picked;
  std::vector<Tried> defaults;  // that fit, the fastest first
  double search_seconds = 0;    // of the processor
  // How many times as long the fastest default takes; 0: no default fits.
  double gain() const { return defaults.empty() ? 0 : defaults.front().seconds / picked.seconds; }
};

// As the engine does it (core/runtime/auto_parallel.h), but that no plan is made: of what a search finds the one whose
// simulated step is the shortest.
Result<Compared> compare(const Pair& pair, const std::string& folder);
Result<Tried> pick(const SearchProblem& problem);

}  // namespace epl::plans
