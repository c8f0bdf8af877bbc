// Makes and rehearses the plans that a search proposes, and takes the fastest.
#include "core/runtime/auto_parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "core/compile/budget.h"
#include "core/compile/plan_memory.h"
#include "core/compile/search_keys.h"
#include "core/compile/search_model.h"
#include "core/runtime/rehearsal.h"
#include "core/runtime/within_budget.h"

namespace epl {
namespace {

constexpr size_t rehearsed_plans = 3;
constexpr size_t looked_at = 24;  // of those that are found: some are no plans of this model, or do not fit
constexpr size_t told_refusals = 3;
constexpr int smaller_searches = 3;
constexpr int64_t one_is_enough = 16;  // ranks of a form, of which the first one's trace is looked at
// What less memory costs is told in passing.
constexpr int64_t work_of_front = 1'000'000;
constexpr size_t most_of_front = 8;
constexpr double smaller_share = 0.75;  // of the bytes of the search before
constexpr const char *auto_key = "auto.auto_parallel", *budget_key = "memory.budget";

// Another plan may be possible where one is not.
bool may_go_on(const Status& status) {
  return status.code() == Code::unsupported || status.code() == Code::invalid_argument;
}

double bytes_of(const CompiledPlan& plan, int64_t rank) {
  const Device& device = *plan.device();
  return static_cast<double>(device.memory_bytes()) * device.machine().kind(rank).memory;
}

// The bytes that a rank may have where one needs more than its device has; 0: none does.
int64_t missed_budget(const CompiledPlan& plan) {
  if (plan.device()->memory_bytes() <= 0) return 0;
  bool fits = true;
  double least = bytes_of(plan, 0);
  for (int v = 0; v < plan.virtual_devices(); ++v) {
    const auto peak = static_cast<double>(PlanMemory(plan).peak(v));
    for (const int rank : plan.mesh(v).device.ranks) {
      fits = fits && peak <= bytes_of(plan, rank);
      least = std::min(least, bytes_of(plan, rank));
    }
  }
  return fits ? 0 : static_cast<int64_t>(least);
}

double share_in_percent(double seconds, double of) { return std::round(1000 * (seconds / of - 1)) / 10; }

std::string milliseconds_text(double seconds) { return number_text(std::round(1e6 * seconds) / 1e3); }

class Parallel {
 public:
  Parallel(const Host& host, const PlanOptions& options) : host_(host), options_(options), stop_(options.stop) {}

  Result<std::shared_ptr<const CompiledPlan>> run() {
    EPL_TRY(check_searchable(options_.strategy));
    leave_out_annotations();
    EPL_TRY(try_plan({.name = "the strategy as it is", .strategy = options_.strategy}));
    // One rank that has the bytes is the fastest as it is.
    if (options_.ranks > 1) {
      const Status searched = search();
      EPL_TRY(is_late(searched) ? end_late() : searched);
    }
    std::ranges::stable_sort(trials_, {}, &Trial::seconds);
    if (trials_.empty()) return refusal();
    return taken();
  }

 private:
  struct Trial {
    std::string name;
    Strategy strategy;
    std::optional<SearchCost> cost = {};  // by the search
    double seconds = 0;
    int64_t bytes = 0;  // of a rank
  };

  // All processes of a job decide alike, whatever threads they have.
  PlanOptions with(const Strategy& strategy) const {
    PlanOptions out = options_;
    out.strategy = strategy;
    if (out.over_processes()) out.threads = 1;
    out.stop = stop_;
    return out;
  }

  // Then the best so far is taken. Processes would have come to different ones, and they need the same plan.
  bool is_late(const Status& searched) const {
    return searched.code() == Code::deadline_exceeded && !options_.over_processes();
  }

  // What is made yet takes its time: the plan that is taken, and before that, where there is none, the first that is
  // possible of those that were found.
  Status end_late() {
    is_late_ = true;
    stop_ = options_.stop.without_deadline();
    for (const SearchFound& one : found_.best) {
      if (!trials_.empty()) break;
      EPL_TRY(try_candidate(*problem_, one));
    }
    return trials_.empty() ? Stop::status(Code::deadline_exceeded) : Status();
  }

  // The model's own annotations are in the strategy as it is, and stand beside it in no other.
  void leave_out_annotations() {
    const auto annotated = options_.model->strategy(options_.ranks);
    open_ = options_.strategy;
    open_.has_default = !annotated.ok() || !annotated->empty();
  }

  // What cannot be planned is told of, and is no error.
  Status refuse(const std::string& what, const Status& why) {
    if (!may_go_on(why)) return why;
    if (first_refusal_.ok()) first_refusal_ = why;
    if (refusals_.size() < told_refusals)
      refusals_.push_back(cat(auto_key, ": ", what, " is not possible: ", why.message()));
    return {};
  }

  SearchLimits limits() const { return {.count = looked_at, .by_memory = true, .stop = stop_}; }

  // Where there is nothing to search the strategy as it is may still be possible.
  Status search() {
    const auto measured_model = measured();
    if (!measured_model.ok()) return refuse("a search", measured_model.status());
    const SearchProblem& problem = problem_.emplace(*measured_model);
    SearchSpace space = space_of(options_.strategy, problem.beside != MemoryKind::device);
    // Such a batch stays one.
    if (!measured_train().coupled.empty() && space.micro_batches.empty()) space.micro_batches = {1};
    found_ = search_plans(problem, space, limits());
    look_at_units(problem, space);
    EPL_TRY(try_found(problem, found_));
    for (const SearchFound& one :
         time_over_memory(problem, space, {.count = 1, .work = work_of_front, .stop = stop_}, most_of_front)) {
      front_.push_back({.plan = print_candidate(problem, one.candidate),
                        .seconds = one.cost.seconds,
                        .bytes = static_cast<int64_t>(one.cost.bytes)});
    }
    // Closed forms know bytes roughly. Where too little of what was found fits, some room is left.
    SearchProblem smaller = problem;
    for (int i = 0; i < smaller_searches && problem.bytes > 0 && found_plans_ < rehearsed_plans; ++i) {
      smaller.bytes *= smaller_share;
      EPL_TRY(try_found(problem, search_plans(smaller, space, limits())));
    }
    return stop_.check();
  }

  // Nothing else says that a plan for many ranks could be faster, or that there could be one.
  void look_at_units(const SearchProblem& problem, const SearchSpace& space) {
    const double seconds =
        found_.best.empty() ? std::numeric_limits<double>::infinity() : found_.best.front().cost.seconds;
    const std::optional<MoreUnits> more = with_more_units(problem, space, limits(), seconds);
    if (!more) return;
    more_units_ = cat("with reproducible.units = ", more->units, " a step would take ",
                      milliseconds_text(more->found.cost.seconds), " ms by the cost model");
    if (std::isfinite(seconds)) more_units_ += cat(", not ", milliseconds_text(seconds), " ms");
    more_units_ += cat("; copies x micro-batches may be ", problem.units, " at most with the units that there are");
  }

  Status refusal() const {
    if (more_units_.empty()) return first_refusal_;
    return {first_refusal_.code(), cat(first_refusal_.message(), "; ", auto_key, ": ", more_units_)};
  }

  Status try_found(const SearchProblem& problem, const SearchResult& result) {
    for (const SearchFound& one : by_simulated_steps(problem, result.best)) {
      if (found_plans_ == rehearsed_plans) break;
      EPL_TRY(stop_.check());
      EPL_TRY(try_candidate(problem, one));
    }
    return {};
  }

  // Once.
  Status try_candidate(const SearchProblem& problem, const SearchFound& one) {
    const std::string name = print_candidate(problem, one.candidate);
    if (!tried_.insert(name).second) return {};
    const size_t before = trials_.size();
    Status made =
        try_plan({.name = name, .strategy = with_candidate(open_, problem, one.candidate, experts_), .cost = one.cost});
    found_plans_ += trials_.size() - before;
    if (!made.ok()) tried_.erase(name);  // it was stopped
    return made;
  }

  // Without a budget a rank may have what its device has.
  Status try_plan(Trial trial) {
    auto plan = plan_within_budget(host_, with(trial.strategy));
    const int64_t missed = plan.ok() ? missed_budget(**plan) : 0;
    if (missed > 0 && !trial.strategy.config.has(budget_key)) {
      EPL_TRY(set_config(trial.strategy, budget_key, cat(missed)));
      plan = plan_within_budget(host_, with(trial.strategy));
    }
    if (!plan.ok()) return refuse(trial.name, plan.status());
    const auto seconds = seconds_of_step(host_, *plan);
    if (!seconds.ok()) return refuse(trial.name, seconds.status());
    trial.seconds = *seconds;
    trial.bytes = PlanMemory(**plan).peak();
    trials_.push_back(std::move(trial));
    return {};
  }

  const Plan& measured_train() const { return forms_.front().plan->entry(EntryKind::train)->plan; }

  // The layers of the model, on one rank, cut over several, and with experts shared out.
  Result<SearchProblem> measured() {
    EPL_TRY(add_form(1, false));
    for (const int64_t split : splits_to_try(open_, options_.ranks)) {
      for (const bool sequence : {false, true}) {
        if (sequence && open_.config.has("split.sequence")) continue;
        const Status added = add_form(split, sequence);
        if (!added.ok() && !may_go_on(added)) return added;
      }
    }
    EPL_TRY(add_experts());
    EPL_ASSIGN(SearchProblem problem, problem_of(forms_));
    EPL_ASSIGN(const int64_t budget, memory_budget(options_.strategy));
    if (budget > 0) problem.bytes = static_cast<double>(budget);
    problem.beside = memory_for_states();
    problem.beside_bytes = bytes_beside(problem);
    if (options_.strategy.config.has("gradient_checkpoint.type")) keep_all(problem);
    return problem;
  }

  Result<SearchProblem> problem_of(const std::vector<RehearsedForm>& forms) const {
    EPL_ASSIGN(SearchProblem problem, search_problem_of(forms, options_.ranks));
    // Independent ones have units of their own.
    if (options_.strategy.text("batch.semantics") != "global") problem.units = 0;
    problem.two_levels = may_go_in_levels(options_.strategy);
    return problem;
  }

  // Nobody's folder gets files that nobody has asked for. The device's own: there is none.
  MemoryKind memory_for_states() const {
    const MemoryKind kind = memory_beside(*forms_.front().plan->device());
    const Attributes& set = options_.strategy.config;
    const bool asks = set.has("offload.folder") || set.has("offload.level");
    return kind == MemoryKind::file && !asks ? MemoryKind::device : kind;
  }

  // What a machine says; 0: nothing.
  static double bytes_beside(const SearchProblem& problem) {
    const std::vector<Machine::Memory>& memories = problem.cost.machine().memories;
    const auto found = std::ranges::find(memories, problem.beside, &Machine::Memory::kind);
    return found == memories.end() || problem.beside == MemoryKind::device ? 0 : static_cast<double>(found->bytes);
  }

  Status add_experts() {
    experts_ = pattern_of_experts(*measured_train().graph);
    if (experts_.empty()) return {};
    EPL_ASSIGN(const SearchProblem alone, problem_of({forms_.front()}));
    for (const int64_t experts : experts_to_try(alone, number_of_experts(*measured_train().graph))) {
      const Status added = add_measured({.name = cat("experts over ", experts, " ranks"), .experts = experts},
                                        of_shared_experts(open_, experts_, experts), experts);
      if (!added.ok() && !may_go_on(added)) return added;
    }
    return {};
  }

  Status add_form(int64_t split, bool sequence) {
    return add_measured(
        {.name = split > 1 ? cat("split of ", split, sequence ? " by sequence" : "") : "", .sequence = sequence},
        of_one_copy(open_, split, sequence), split);
  }

  Status add_measured(RehearsedForm form, const Strategy& strategy, int64_t ranks) {
    PlanOptions one = with(strategy);
    // As many threads as a rank of the job has.
    const int64_t here = options_.local_ranks > 0 ? options_.local_ranks : options_.ranks;
    if (one.threads == 0) one.threads = static_cast<int>(std::max<int64_t>(1, host_.threads / here));
    one.ranks = ranks;
    one.local_ranks = 0;
    one.evaluate = one.predict = false;
    one.shapes.clear();
    EPL_ASSIGN(form.plan, CompiledPlan::create(host_, one));
    // Where nothing is shared out a form of experts is none.
    const std::vector<TaskGraph>& parts = form.plan->entry(EntryKind::train)->plan.task_graphs;
    if (form.experts > 1 && std::ranges::all_of(parts, [](const TaskGraph& part) { return part.experts.empty(); }))
      return {};
    EPL_ASSIGN(Rehearsal rehearsal, rehearse(host_, form.plan, one_is_enough));
    form.trace = std::move(rehearsal.trace);
    forms_.push_back(std::move(form));
    return {};
  }

  // The user says what is computed again.
  static void keep_all(SearchProblem& problem) {
    for (SearchForm& form : problem.forms) {
      for (SearchLayer& layer : form.kinds) layer.again.clear();
    }
  }

  static std::string decides(const Trial& best, const Trial& other) {
    return &best != &other && best.cost && other.cost ? what_decides(*best.cost, *other.cost) : std::string();
  }

  // How far a plan may be from the best there is: the one that is taken, where the search found it.
  std::string gap_note(const Trial& taken) const {
    const double seconds = taken.cost ? taken.cost->seconds : found_.best.front().cost.seconds;
    const double gap = share_in_percent(seconds, found_.least_seconds);
    return cat(auto_key, ": by the cost model no plan takes less than ", milliseconds_text(found_.least_seconds),
               " ms, and ", taken.cost ? "this one" : "the best that was found", " takes ",
               gap > 0 ? cat(number_text(gap), " % more") : "no more", "; ", found_.shapes,
               " shapes are possible, of which ", found_.searched, " could be the fastest by their bounds",
               found_.finished ? "" : ", and not all were seen");
  }

  Result<std::shared_ptr<const CompiledPlan>> taken() {
    const Trial& best = trials_.front();
    PlanOptions chosen = options_;
    chosen.strategy = best.strategy;
    if (!options_.over_processes()) chosen.stop = stop_.without_deadline();
    chosen.notes.push_back(
        cat(auto_key, ": ", best.name, " takes ", milliseconds_text(best.seconds), " ms for a step, rehearsed",
            best.cost ? cat(", and ", milliseconds_text(best.cost->seconds), " ms by the cost model") : ""));
    if (is_late_)
      chosen.notes.push_back(cat(auto_key, ": the deadline of the call ended the search when ", trials_.size(),
                                 " plans were rehearsed; with more time another one may be found"));
    if (!found_.best.empty()) chosen.notes.push_back(gap_note(best));
    if (!more_units_.empty()) chosen.notes.push_back(cat(auto_key, ": ", more_units_));
    for (const Trial& one : trials_) {
      chosen.searched.push_back({.plan = one.name,
                                 .rehearsed = true,
                                 .seconds = one.seconds,
                                 .bytes = one.bytes,
                                 .decides = decides(best, one)});
    }
    chosen.searched.insert(chosen.searched.end(), front_.begin(), front_.end());
    for (size_t i = 1; i < trials_.size(); ++i) {
      const Trial& other = trials_[i];
      const double more = share_in_percent(other.seconds, best.seconds);
      std::string note = cat(auto_key, ": ", other.name, " takes ",
                             more > 0 ? cat(number_text(more), " % more time") : std::string("as long"));
      if (const std::string why = decides(best, other); !why.empty()) note += cat("; by the cost model ", why);
      chosen.notes.push_back(std::move(note));
    }
    chosen.notes.insert(chosen.notes.end(), refusals_.begin(), refusals_.end());
    return plan_within_budget(host_, chosen);
  }

  const Host& host_;
  const PlanOptions& options_;
  Stop stop_;
  bool is_late_ = false;  // its deadline has passed
  Strategy open_;         // that all but the first trial complete
  std::vector<RehearsedForm> forms_;
  std::string experts_;  // their pattern
  std::optional<SearchProblem> problem_;
  SearchResult found_;
  std::vector<SearchTrial> front_;
  std::vector<Trial> trials_;
  std::set<std::string> tried_;  // names of what was found
  size_t found_plans_ = 0;       // of the trials
  std::vector<std::string> refusals_;
  std::string more_units_;  // what they would give; empty: nothing
  Status first_refusal_;
};

}  // namespace

Result<std::shared_ptr<const CompiledPlan>> plan_in_parallel(const Host& host, const PlanOptions& options) {
  const bool searches = options.strategy.flag(auto_key) && options.training && !options.decisions;
  return searches ? Parallel(host, options).run() : plan_within_budget(host, options);
}

}  // namespace epl
