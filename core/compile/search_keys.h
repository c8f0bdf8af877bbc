// A strategy and a search over plans: which keys are left open (`auto.auto_parallel`), and a candidate as keys.
#pragma once

#include <string>
#include <vector>

#include "core/ir/graph.h"
#include "core/strategy/search_step.h"

namespace epl {

// A strategy whose scopes say where nodes run leaves no stage and no split to find.
Status check_searchable(const Strategy& strategy);
// Over how many ranks all nodes may be cut, beside none. Where a split could change bits it is not chosen unasked.
std::vector<int64_t> splits_to_try(const Strategy& strategy, int64_t ranks);
// Without what a search chooses, and cut over so many ranks: what layers are measured in. `sequence`: as
// SearchForm::sequence.
Strategy of_one_copy(Strategy strategy, int64_t split, bool sequence = false);
// The scope that experts are in, as a pattern of it, by the names of their weights or of nodes; empty: there are none.
std::string pattern_of_experts(const Graph& graph);
// By the numbers in these names, or by the first dimension of weights that experts have in one tensor; 0: unknown.
int64_t number_of_experts(const Graph& graph);
// Over how many ranks so many experts (0: unknown) may be shared out, beside one. No bit follows from that. All
// divisors of both where they are few. Of many the largest of one host, whose tokens take near links, and the largest
// of all, whose ranks have the fewest bytes: what lies between has neither.
std::vector<int64_t> experts_to_try(const SearchProblem& problem, int64_t experts);
// As of_one_copy, with as many copies as share out the experts.
Strategy of_shared_experts(Strategy strategy, const std::string& pattern, int64_t experts);
// `moves`: the optimizer's states and weights may lie in another memory.
SearchSpace space_of(const Strategy& strategy, bool moves);
// Whether all-reduces may go in two levels (SearchProblem::two_levels): where the key does not say that they do not.
bool may_go_in_levels(const Strategy& strategy);
// With what a candidate says. Keys that are set stay as they are. `experts`: their pattern.
Strategy with_candidate(Strategy strategy, const SearchProblem& problem, const SearchCandidate& candidate,
                        const std::string& experts = {});
// Takes what was chosen for `auto.auto_parallel` from the strategy of a plan that was made for it, where it is open.
void take_searched(Strategy& strategy, const Strategy& chosen);

}  // namespace epl
