// A strategy and a search over plans: which keys are left open (`auto.auto_parallel`), and a candidate as keys.
#pragma once

#include <vector>

#include "core/strategy/search.h"

namespace epl {

// A strategy whose scopes say where nodes run leaves no stage and no split to find.
Status check_searchable(const Strategy& strategy);
// Over how many ranks all nodes may be cut, beside none. Where a split could change bits it is not chosen unasked.
std::vector<int64_t> splits_to_try(const Strategy& strategy, int64_t ranks);
// Without what a search chooses, and cut over so many ranks: what layers are measured in. `sequence`: as
// SearchForm::sequence.
Strategy of_one_copy(Strategy strategy, int64_t split, bool sequence = false);
// `moves_states`: they may lie in another memory.
SearchSpace space_of(const Strategy& strategy, bool moves_states);
// With what a candidate says. Keys that are set stay as they are.
Strategy with_candidate(Strategy strategy, const SearchProblem& problem, const SearchCandidate& candidate);
// Takes what was chosen for `auto.auto_parallel` from the strategy of a plan that was made for it, where it is open.
void take_searched(Strategy& strategy, const Strategy& chosen);

}  // namespace epl
