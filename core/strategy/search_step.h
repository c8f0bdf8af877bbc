// A step of a candidate in virtual time: call by call in the order of its schedule's table, and layer by layer within a
// call, where the search has closed forms (cost_of). It takes the same numbers of layers, links and memories, and none
// of the formulas. It takes milliseconds, for thousands of ranks, so that it says which of the plans that formulas find
// alike are worth making.
//
// A rank has a stream of kernels and one of transfers, which has one transfer at a time: messages to the next stage
// wait for sums of gradients. Two more are between memories, one for each direction. Weights that copies share out are
// gathered one layer ahead, and those that lie in another memory come from there as early. Ranks of a split are in
// step; copies are apart, and wait for each other in collectives alone. Each stage has the links that its ranks have.
#pragma once

#include <cstdint>
#include <vector>

#include "core/strategy/search.h"

namespace epl {

// Ranks that are slower than others, drawn anew for each seed.
struct SearchStragglers {
  double share = 0;   // of all ranks
  double slower = 1;  // so many times
  unsigned seed = 1;
};

struct SearchStep {
  double seconds = 0;
  double idle = 0;       // the share of it that streams of kernels do nothing, at the mean
  int64_t calls = 0;     // of all ranks, those of a split counted as one
  int64_t messages = 0;  // between stages
};
SearchStep simulate_step(const SearchProblem& problem, const SearchCandidate& candidate,
                         const SearchStragglers& stragglers = {});
// What was found, in the order of simulated steps.
std::vector<SearchFound> by_simulated_steps(const SearchProblem& problem, const std::vector<SearchFound>& found);

}  // namespace epl
