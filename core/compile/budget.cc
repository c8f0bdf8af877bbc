#include "core/compile/budget.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/compile/plan_memory.h"

namespace epl {

Result<int64_t> parse_bytes(std::string_view text, std::string_view what) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr Unit units[] = {
      {"", 1},      {"B", 1},        {"kB", 1e3},        {"MB", 1e6},           {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0}};
  double number = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  const auto* found = std::ranges::find(units, unit, &Unit::name);
  const double bytes = found == std::end(units) ? 0 : number * found->bytes;
  if (wrong != std::errc() || !(bytes >= 1) || bytes > 9e18)
    return invalid(what, " is ", quoted(text), "; a size as 1600000000, 1.6GB or 2GiB is expected");
  return static_cast<int64_t>(bytes);
}

Result<int64_t> memory_budget(const Strategy& strategy) {
  const std::string& text = strategy.text("memory.budget");
  const bool asked = strategy.text("gradient_checkpoint.type") == "budget";
  if (text.empty() && asked)
    return invalid("gradient_checkpoint.type is \"budget\", and memory.budget does not say how many bytes");
  return text.empty() ? Result<int64_t>(0) : parse_bytes(text, "memory.budget");
}

Status over_budget(const CompiledPlan& plan, int64_t budget, int64_t least, std::string_view with) {
  const PlanMemory memory(plan);
  const int fullest = memory.fullest_class();
  return unsupported("memory.budget allows ", grouped(budget), " bytes, and a rank has ", grouped(least), " at least",
                     with, ", ", grouped(least - budget), " too many; as planned without a budget it has ",
                     grouped(memory.peak(fullest)), ", of which ", grouped(plan.state_of(fullest).bytes()),
                     " are weights and the optimizer's state. A smaller batch takes less for results of the forward "
                     "pass, and a split or a pipeline less for weights");
}

std::string_view outcome_name(BudgetTrial::Outcome outcome) {
  switch (outcome) {
    case BudgetTrial::Outcome::taken:
      return "taken";
    case BudgetTrial::Outcome::fits:
      return "fits";
    case BudgetTrial::Outcome::too_large:
      return "too large";
    default:
      return "slower";
  }
}

std::string trial_text(const BudgetTrial& trial) {
  const std::string keys = trial.keys.empty() ? "the strategy's keys" : trial.keys;
  return cat(keys, trial.stays > 0 ? cat(", of which ", trial.stays, " % stay") : "",
             trial.again ? ", with results computed again" : "");
}

void take_chosen(Strategy& strategy, const Strategy& chosen) {
  if (strategy.text("memory.budget").empty()) return;
  for (const char* key : {"zero.level", "offload.level", "offload.values", "pipeline.num_micro_batch"}) {
    const Attribute* there = chosen.config.find(key);
    if (there && !strategy.config.has(key)) strategy.config.set(key, *there);
  }
}

// Where a plan does not fit into its budget, another one is made that computes results again. Processes may have other
// numbers of threads, and must decide alike: they decide for one thread a rank.
Status CompiledPlan::keep_to_budget(const Host& host, const PlanOptions& given, int64_t budget, int64_t* least,
                                    std::shared_ptr<CompiledPlan>& plan) {
  const int wanted = plan->threads_;
  PlanOptions options = given;
  if (given.over_processes() && given.threads == 0 && wanted > 1) {
    options.threads = 1;
    EPL_ASSIGN(plan, compile(host, options, {}));
  }
  if (given.decisions && PlanMemory(*plan).peak() > budget)
    return unsupported("memory.budget allows ", grouped(budget), " bytes, and by the plan file a rank has ",
                       grouped(PlanMemory(*plan).peak()), " here; make the plan anew");
  BudgetFit fit;
  if (!given.decisions) {
    EPL_ASSIGN(fit, fit_within(*plan, {.budget = budget, .stop = given.stop, .solved = given.solved}, least));
  }
  return finish_within(host, options, fit, wanted, budget, plan);
}

Status CompiledPlan::finish_within(const Host& host, const PlanOptions& options, const BudgetFit& fit, int threads,
                                   int64_t budget, std::shared_ptr<CompiledPlan>& plan) {
  if (options.threads > 0 && options.threads < threads) {
    PlanOptions with_threads = options;
    with_threads.threads = threads;
    EPL_ASSIGN(plan, with_most_threads(host, with_threads, fit.passes, budget));
  } else if (!plan || !fit.passes.empty()) {
    EPL_ASSIGN(plan, compile(host, options, fit.passes));
  }
  const int64_t peak = PlanMemory(*plan).peak();
  EPL_CHECK(peak <= budget, "a plan of ", peak, " bytes for a budget of ", budget);
  if (options.decisions) return {};
  const auto recomputes = [](const Entry& entry) { return !entry.plan.node_recomputed.empty(); };
  std::vector<std::string> notes = options.notes;
  notes.push_back(cat("memory.budget: a rank has at most ", grouped(peak), " of ", grouped(budget), " bytes",
                      std::ranges::any_of(plan->entries_, recomputes) ? "" : ", and nothing is computed again"));
  if (plan->threads_ < threads)
    notes.push_back(cat("memory.budget: a rank has ", plan->threads_, " of the ", threads,
                        " threads that there are for it, because kernels on more of them need more bytes"));
  for (Entry& entry : plan->entries_) {
    if (entry.kind == EntryKind::train) entry.plan.notes.insert(entry.plan.notes.end(), notes.begin(), notes.end());
  }
  return {};
}

Result<std::shared_ptr<const CompiledPlan>> fitting_plan(const Host& host, const PlanOptions& given,
                                                         const BudgetFit& fit,
                                                         std::shared_ptr<const CompiledPlan> as_it_is) {
  EPL_ASSIGN(const int64_t budget, memory_budget(given.strategy));
  const int wanted = CompiledPlan::threads_of(host, given);
  PlanOptions options = given;
  if (given.over_processes() && given.threads == 0 && wanted > 1) options.threads = 1;
  std::shared_ptr<CompiledPlan> plan;
  if (as_it_is && as_it_is.use_count() == 1 && fit.passes.empty() && as_it_is->threads_ == wanted) {
    plan = std::const_pointer_cast<CompiledPlan>(std::exchange(as_it_is, nullptr));  // nobody else has it
    plan->options_.keeps_to_budget = true;
    plan->options_.notes = given.notes;
    plan->options_.tried = given.tried;
    plan->options_.searched = given.searched;
  }
  EPL_TRY(CompiledPlan::finish_within(host, options, fit, wanted, budget, plan));
  EPL_TRY(given.stop.check());
  plan->forget_search(given);
  return std::shared_ptr<const CompiledPlan>(std::move(plan));
}

// With as many as there are, or by halves as many as fit: one does.
Result<std::shared_ptr<CompiledPlan>> CompiledPlan::with_most_threads(const Host& host, PlanOptions options,
                                                                      const std::string& passes, int64_t budget) {
  std::shared_ptr<CompiledPlan> best;
  int fits = 0, too_many = options.threads + 1;
  while (!best || too_many - fits > 1) {
    EPL_ASSIGN(std::shared_ptr<CompiledPlan> plan, compile(host, options, passes));
    if (PlanMemory(*plan).peak() <= budget) {
      fits = options.threads;
      best = std::move(plan);
    } else {
      EPL_CHECK(options.threads > 1, "one thread needs more than the ", budget, " bytes that were found to be enough");
      too_many = options.threads;
    }
    options.threads = std::max(1, fits + (too_many - fits) / 2);
  }
  return best;
}

}  // namespace epl
