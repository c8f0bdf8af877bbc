// Makes and rehearses the plans that a search proposes, and takes the fastest.
#include "core/runtime/auto_parallel.h"

#include <algorithm>
#include <cmath>

#include "core/compile/budget.h"
#include "core/compile/search_keys.h"
#include "core/compile/search_model.h"
#include "core/runtime/rehearsal.h"
#include "core/runtime/within_budget.h"

namespace epl {
namespace {

constexpr size_t rehearsed_plans = 3;
constexpr const char* auto_key = "auto.auto_parallel";

// Another plan may be possible where one is not.
bool may_go_on(const Status& status) {
  return status.code() == Code::unsupported || status.code() == Code::invalid_argument;
}

double share_in_percent(double seconds, double of) { return std::round(1000 * (seconds / of - 1)) / 10; }

class Parallel {
 public:
  Parallel(const Host& host, const PlanOptions& options) : host_(host), options_(options) {}

  Result<std::shared_ptr<const CompiledPlan>> run() {
    EPL_TRY(check_searchable(options_.strategy));
    EPL_TRY(try_plan({.name = "the strategy as it is", .strategy = options_.strategy}));
    const auto problem = measured();
    if (!problem.ok()) {
      // Then there is nothing to search, and the strategy as it is may still be possible.
      EPL_TRY(refuse("a search", problem.status()));
    } else {
      EPL_TRY(search(*problem));
    }
    std::ranges::stable_sort(trials_, {}, &Trial::seconds);
    if (trials_.empty()) return first_refusal_;
    return taken();
  }

 private:
  struct Trial {
    std::string name;
    Strategy strategy;
    std::optional<SearchCost> cost = {};  // by the search
    double seconds = 0;
  };

  // All processes of a job decide alike, whatever threads they have.
  PlanOptions with(const Strategy& strategy) const {
    PlanOptions out = options_;
    out.strategy = strategy;
    if (out.over_processes()) out.threads = 1;
    return out;
  }

  // What cannot be planned is told of, and is no error.
  Status refuse(const std::string& what, const Status& why) {
    if (!may_go_on(why)) return why;
    if (first_refusal_.ok()) first_refusal_ = why;
    refusals_.push_back(cat(auto_key, ": ", what, " is not possible: ", why.message()));
    return {};
  }

  Status search(const SearchProblem& problem) {
    const bool moves = memory_beside(*forms_.front().plan->device()) == MemoryKind::host;
    found_ =
        search_plans(problem, space_of(options_.strategy, moves), {.count = rehearsed_plans, .stop = options_.stop});
    for (const SearchFound& one : found_.best) {
      EPL_TRY(options_.stop.check());
      EPL_TRY(try_plan({.name = print_candidate(problem, one.candidate),
                        .strategy = with_candidate(options_.strategy, problem, one.candidate),
                        .cost = one.cost}));
    }
    return {};
  }

  Status try_plan(Trial trial) {
    const auto plan = plan_within_budget(host_, with(trial.strategy));
    if (!plan.ok()) return refuse(trial.name, plan.status());
    const auto seconds = seconds_of_step(host_, *plan);
    if (!seconds.ok()) return refuse(trial.name, seconds.status());
    trial.seconds = *seconds;
    trials_.push_back(std::move(trial));
    return {};
  }

  // The layers of the model, on one rank and cut over several.
  Result<SearchProblem> measured() {
    EPL_TRY(add_form(1));
    for (const int64_t split : splits_to_try(options_.strategy, options_.ranks)) {
      const Status added = add_form(split);
      if (!added.ok() && !may_go_on(added)) return added;
    }
    EPL_ASSIGN(SearchProblem problem, search_problem_of(forms_, options_.ranks));
    EPL_ASSIGN(const int64_t budget, memory_budget(options_.strategy));
    if (budget > 0) problem.bytes = static_cast<double>(budget);
    if (options_.strategy.config.has("gradient_checkpoint.type")) keep_all(problem);
    return problem;
  }

  Status add_form(int64_t split) {
    PlanOptions one = with(of_one_copy(options_.strategy, split));
    // As many threads as a rank of the job has.
    const int64_t here = options_.local_ranks > 0 ? options_.local_ranks : options_.ranks;
    if (one.threads == 0) one.threads = static_cast<int>(std::max<int64_t>(1, host_.threads / here));
    one.ranks = split;
    one.local_ranks = 0;
    one.evaluate = one.predict = false;
    one.shapes.clear();
    EPL_ASSIGN(const auto plan, CompiledPlan::create(host_, one));
    EPL_ASSIGN(Rehearsal rehearsal, rehearse(host_, plan));
    forms_.push_back(
        {.name = split > 1 ? cat("split of ", split) : "", .plan = plan, .trace = std::move(rehearsal.trace)});
    return {};
  }

  // The user says what is computed again.
  static void keep_all(SearchProblem& problem) {
    for (SearchForm& form : problem.forms) {
      for (SearchLayer& layer : form.kinds) layer.again.clear();
    }
  }

  Result<std::shared_ptr<const CompiledPlan>> taken() {
    const Trial& best = trials_.front();
    PlanOptions chosen = options_;
    chosen.strategy = best.strategy;
    const double milliseconds = std::round(1e6 * best.seconds) / 1e3;
    chosen.notes.push_back(
        cat(auto_key, ": ", best.name, " takes ", number_text(milliseconds), " ms for a step, rehearsed; ",
            found_.shapes, " shapes of a plan are possible, of which ", found_.searched,
            " could be the fastest by their bounds", found_.finished ? "" : ", and not all were seen"));
    for (size_t i = 1; i < trials_.size(); ++i) {
      const Trial& other = trials_[i];
      std::string note = cat(auto_key, ": ", other.name, " takes ",
                             number_text(share_in_percent(other.seconds, best.seconds)), " % more time");
      if (best.cost && other.cost) note += cat("; by the cost model ", what_decides(*best.cost, *other.cost));
      chosen.notes.push_back(std::move(note));
    }
    chosen.notes.insert(chosen.notes.end(), refusals_.begin(), refusals_.end());
    return plan_within_budget(host_, chosen);
  }

  const Host& host_;
  const PlanOptions& options_;
  std::vector<RehearsedForm> forms_;
  SearchResult found_;
  std::vector<Trial> trials_;
  std::vector<std::string> refusals_;
  Status first_refusal_;
};

}  // namespace

Result<std::shared_ptr<const CompiledPlan>> plan_in_parallel(const Host& host, const PlanOptions& options) {
  const bool searches = options.strategy.flag(auto_key) && options.training && !options.decisions && options.ranks > 1;
  return searches ? Parallel(host, options).run() : plan_within_budget(host, options);
}

}  // namespace epl
