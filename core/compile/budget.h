// Plans within a budget (`memory.budget`): what a rank of them has at its peak, in the memory in which kernels compute,
// is no more than so many bytes.
#pragma once

#include <cstdint>
#include <string>

#include "core/compile/compiled_plan.h"

namespace epl {

// "1.6GB", "512MiB" or a number of bytes. `what` begins the error.
Result<int64_t> parse_bytes(std::string_view text, std::string_view what);

// What a strategy allows a rank to have; 0: it sets no limit.
Result<int64_t> memory_budget(const Strategy& strategy);

// How a plan that was made without a budget fits into one. Of the ways to compute results again that the solver makes,
// joined with shares that stay of what lies elsewhere, those count that no other beats in seconds by the cost model and
// in bytes. The ways do not depend on the budget. The fastest whose exact peak fits is taken
// (core/compile/budget_ways.h), so more budget never takes longer, and less never has a higher peak; of very large
// plans the latter holds where exact peaks stand in the order of the solver's. An error says how many bytes are
// missing. `least`, if not null: where no way fits, the least peak.
Result<BudgetFit> fit_within(const CompiledPlan& plan, const FitRequest& request, int64_t* least = nullptr);
// The plan that keeps to its budget by `fit`. `as_it_is`: by the same options without a budget, taken if nobody else
// has it; may be null.
Result<std::shared_ptr<const CompiledPlan>> fitting_plan(const Host& host, const PlanOptions& options,
                                                         const BudgetFit& fit,
                                                         std::shared_ptr<const CompiledPlan> as_it_is);
// FitRequest::solved of a search.
std::shared_ptr<SolvedRecompute> nothing_solved();

// The largest share that stays.
inline constexpr int most_that_stays = 75;

// What a step computes again, in seconds of a rank by the cost model: the mean over the shapes of a batch.
double seconds_again(const CompiledPlan& plan);

// The error of a plan that does not keep to a budget. `least`: the bytes that a rank has at least; `with`: by which
// keys.
Status over_budget(const CompiledPlan& plan, int64_t budget, int64_t least, std::string_view with = {});

// "taken", "fits", "too large" or "slower".
std::string_view outcome_name(BudgetTrial::Outcome outcome);
// "zero.level = v1, with results computed again"
std::string trial_text(const BudgetTrial& trial);

// Takes what is chosen for a budget from the strategy of a plan that was made for it: keys that `strategy` does not
// set.
void take_chosen(Strategy& strategy, const Strategy& chosen);

}  // namespace epl
