#include "core/strategy/solved_recompute.h"

#include <algorithm>

namespace epl {
namespace {

// All ways of the blocks of a problem may take megabytes.
constexpr size_t most_known = 16;

}  // namespace

SolvedRecompute::Known& SolvedRecompute::known(const RecomputeProblem& problem) {
  const auto found = std::ranges::find(all_, problem, &Known::problem);
  if (found != all_.end()) {
    all_.splice(all_.begin(), all_, found);
  } else {
    all_.emplace_front(problem);
    if (all_.size() > most_known) all_.pop_back();
  }
  return all_.front();
}

const std::optional<RecomputeChoice>& SolvedRecompute::within(const RecomputeProblem& problem, double bytes) {
  Known& one = known(problem);
  const auto found = one.within.find(bytes);
  return found != one.within.end() ? found->second : one.within[bytes] = one.solver.within(bytes);
}

const RecomputeChoice& SolvedRecompute::least(const RecomputeProblem& problem) {
  Known& one = known(problem);
  if (!one.least) one.least = one.solver.least();
  return *one.least;
}

}  // namespace epl
