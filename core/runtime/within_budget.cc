#include "core/runtime/within_budget.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "core/base/seconds_text.h"
#include "core/compile/budget.h"
#include "core/compile/plan_memory.h"
#include "core/runtime/rehearsal.h"
#include "core/train/optimizer.h"

namespace epl {
namespace {

constexpr const char* check_gradients = "gradient_checkpoint.check_gradients";

using SharedPlan = std::shared_ptr<const CompiledPlan>;

// Keys and their values, as a user writes them.
using Keys = std::vector<std::pair<std::string, std::string>>;

std::string text_of(const Keys& keys) {
  std::vector<std::string> out;
  for (const auto& [key, value] : keys) out.push_back(cat(key, " = ", value));
  return join(out, ", ");
}

// Another combination may do without what is not possible in this one: a batch that micro-batches do not divide, or a
// model for which a key has no meaning. All else is no answer to whether it fits.
bool is_refusal(const Status& status) {
  return status.code() == Code::unsupported || status.code() == Code::invalid_argument;
}

// What a key may be that the strategy leaves open; the first value is none.
struct Choice {
  std::vector<Keys> values;
  bool takes_time = false;  // each value has all work of none, and more
  bool moves = false;       // each value but none puts values elsewhere, of which a share may stay
};

// What is known of a combination.
struct Candidate {
  size_t number = 0;
  Keys keys;
  SharedPlan plan;  // without a budget; null: it was not kept
  int64_t peak = 0;
  // Rehearsed without a budget, and what a budget changes by the cost model: ways to keep to it are in this order.
  double seconds = 0;
  double moving = 0;  // of these, for what lies elsewhere
  bool recomputes = false;
  size_t trial = 0;  // its row of what was tried
  BudgetFit fit;
};

// What a choice costs, beside the same plan without it.
std::string cost_text(std::string_view what, double seconds, int64_t bytes_less) {
  return cat("memory.budget: ", what, seconds < 0 ? " spares " : " takes ", seconds_text(std::abs(seconds)),
             " of a step and ", bytes_less < 0 ? "needs " : "spares ", grouped(std::abs(bytes_less)),
             bytes_less < 0 ? " bytes more on a rank" : " bytes on a rank");
}

// Plans are large. So many of combinations that wait are kept; others are made again.
constexpr int kept_plans = 3;

// A combination that may be looked at: no sooner than it could be the fastest.
struct Waiting {
  double seconds = 0;  // of its step, or that no step of it is below
  size_t number = 0;
  bool rehearsed = false;
  friend auto operator<=>(const Waiting&, const Waiting&) = default;
};

class Choosing {
 public:
  Choosing(const Host& host, const PlanOptions& options, int64_t budget)
      : host_(host), options_(options), budget_(budget) {}

  Result<SharedPlan> run() {
    EPL_ASSIGN(without_, CompiledPlan::create(host_, with({}, false)));
    least_ = without_peak_ = PlanMemory(*without_).peak();
    find_choices();
    EPL_TRY(search());
    // What is missing is not bytes: such a plan has its own reason.
    if (!best_ && options_.strategy.flag(check_gradients)) return CompiledPlan::create(host_, options_);
    if (!best_) return too_small();
    tried_[best_->trial].outcome = BudgetTrial::Outcome::taken;
    PlanOptions chosen = with(best_->keys, true);
    chosen.threads = options_.threads;
    std::ranges::stable_sort(tried_, {}, &BudgetTrial::seconds);
    chosen.tried = std::move(tried_);
    if (!best_->keys.empty() || best_->peak < without_peak_) {
      chosen.notes.push_back(note());
      add_costs(chosen.notes);
    }
    without_ = nullptr;
    return fitting_plan(host_, chosen, best_->fit, std::move(best_->plan));
  }

 private:
  // Trials of a job of several processes have one thread a rank, because all of them choose alike.
  PlanOptions with(const Keys& keys, bool fits) const {
    PlanOptions out = options_;
    out.keeps_to_budget = fits;
    out.solved = solved_;
    if (out.over_processes()) out.threads = 1;
    for (const auto& [key, value] : keys) {
      if (key == state_type_option) {
        out.train.optimizer_options.set(key, value);
        continue;
      }
      const Status set = set_config(out.strategy, key, value);
      EPL_CHECK(set.ok(), set.to_string());
    }
    return out;
  }

  // The one that no other can be faster than is looked at first. What can only be slower than one that fits is left
  // out. So what is looked at before the end does not depend on the budget.
  Status search() {
    std::set<Waiting> waiting;
    for (size_t n = 0; n < combinations_; ++n) {
      if (before(n) == n) waiting.insert({.number = n});
    }
    while (!waiting.empty()) {
      Waiting next = waiting.extract(waiting.begin()).value();
      if (best_ && next.seconds >= best_->seconds) break;
      if (next.rehearsed) {
        EPL_TRY(fit(next));
        continue;
      }
      EPL_ASSIGN(const bool possible, rehearse_step(next));
      for (size_t n = 0; n < combinations_; ++n) {
        if (n != next.number && before(n) == next.number) waiting.insert({.seconds = next.seconds, .number = n});
      }
      next.rehearsed = true;
      if (possible) waiting.insert(next);
    }
    return {};
  }

  // Takes it if it is the fastest that fits.
  Status fit(const Waiting& next) {
    Candidate one = std::move(*measured_[next.number]);
    measured_[next.number]->plan = nullptr;
    BudgetTrial& trial = tried_[one.trial];
    if (!one.plan) {
      EPL_ASSIGN(one.plan, CompiledPlan::create(host_, with(one.keys, false)));
    }
    const double most = best_ ? best_->seconds - one.seconds : std::numeric_limits<double>::infinity();
    const auto found = fit_within(
        *one.plan,
        {.budget = budget_, .moving = one.moving, .most_seconds = most, .stop = options_.stop, .solved = solved_},
        &trial.peak);
    if (!found.ok()) {
      if (!is_refusal(found.status())) return found.status();
      if (trial.peak < least_) nearest_ = one.keys;
      least_ = std::min(least_, trial.peak);
      trial.again = true;
      trial.outcome = BudgetTrial::Outcome::too_large;
      return {};
    }
    if (!std::isfinite(found->seconds)) return {};
    one.fit = *found;
    if (!one.fit.passes.empty()) one.plan = nullptr;
    trial.peak = one.peak = one.fit.peak;
    trial.seconds = one.seconds += one.fit.seconds;
    trial.again = one.fit.again;
    trial.stays = one.fit.stays;
    one.recomputes = one.recomputes || one.fit.again;
    trial.outcome = BudgetTrial::Outcome::fits;
    if (!best_ || one.seconds < best_->seconds) best_ = std::move(one);
    return {};
  }

  // Makes its plan and goes through a step. False: it is not possible.
  Result<bool> rehearse_step(Waiting& next) {
    EPL_TRY(options_.stop.check());
    Candidate one{.number = next.number, .keys = keys_of(next.number), .trial = tried_.size()};
    Result<SharedPlan> plan = without_;
    if (next.number > 0) plan = CompiledPlan::create(host_, with(one.keys, false));
    const Result<double> seconds = plan.ok() ? seconds_of_step(host_, *plan) : plan.status();
    if (!seconds.ok()) return is_refusal(seconds.status()) ? Result<bool>(false) : seconds.status();
    const auto recomputed = [](const Entry& entry) { return !entry.plan.node_recomputed.empty(); };
    one.seconds = *seconds;
    one.moving = moving_of(next.number, *seconds);
    one.plan = *plan;
    one.peak = PlanMemory(**plan).peak();
    one.recomputes = std::ranges::any_of((*plan)->entries(), recomputed);
    tried_.push_back({.keys = text_of(one.keys), .peak = one.peak, .seconds = one.seconds});
    // No part of what stays makes it faster than that.
    next.seconds = one.seconds - one.moving * most_that_stays / 100.0;
    measured_[next.number] = std::move(one);
    keep_few_plans();
    return true;
  }

  // Of the seconds of a step, those for values that lie elsewhere.
  double moving_of(size_t number, double seconds) const {
    if (options_.strategy.flag(check_gradients)) return 0;
    size_t rest = combinations_;
    for (const Choice& choice : choices_) {
      rest /= choice.values.size();
      const size_t digit = number / rest % choice.values.size();
      if (!choice.moves || digit == 0) continue;
      const std::optional<Candidate>& here = measured_[number - digit * rest];
      return here ? std::max(0.0, seconds - here->seconds) : 0;
    }
    return 0;
  }

  // The slowest is needed last, if at all.
  void keep_few_plans() {
    std::vector<Candidate*> kept;
    for (std::optional<Candidate>& one : measured_) {
      if (one && one->plan && one->plan != without_) kept.push_back(&*one);
    }
    if (std::ssize(kept) > kept_plans) (*std::ranges::max_element(kept, {}, &Candidate::seconds))->plan = nullptr;
  }

  // Of numbers of combinations the last choice is the last digit.
  void find_choices() {
    const auto open = [&](const char* key) { return !options_.strategy.config.has(key); };
    if (options_.ranks > 1 && open("zero.level"))
      choices_.push_back({.values = {{}, {{"zero.level", "v1"}}, {{"zero.level", "v2"}}}});
    // Independent micro-batches are part of the mathematics, and their results stay where they are.
    const bool is_global = options_.strategy.text("batch.semantics") == "global";
    const std::string most = is_global ? "states, weights, gradients, activations" : "states, weights";
    if (open("offload.level") && open("offload.values") && has_memory_beside()) {
      choices_.push_back({.values = {{},
                                     {{"offload.level", "v0"}, {"offload.values", "states"}},
                                     {{"offload.level", "v0"}, {"offload.values", most}}},
                          .takes_time = true,
                          .moves = true});
    }
    // Stages wait less for each other with more of them.
    const bool is_pipeline = without_->entries().front().plan.stages() > 1;
    if (open("pipeline.num_micro_batch") && is_global)
      choices_.push_back({.values = {{}, {{"pipeline.num_micro_batch", "2"}}, {{"pipeline.num_micro_batch", "4"}}},
                          .takes_time = !is_pipeline});
    if (may_store_in_bf16()) choices_.push_back({.values = {{}, {{std::string(state_type_option), "bf16"}}}});
    for (const Choice& choice : choices_) combinations_ *= choice.values.size();
    measured_.resize(combinations_);
  }

  // Where the strategy allows it, and the trainer leaves it open.
  bool may_store_in_bf16() const {
    if (options_.strategy.text("memory.allow_state_type") != "bf16") return false;
    const TrainOptions& train = options_.train;
    const auto says = [](const ParameterGroup& group) { return group.options.has(state_type_option); };
    const auto row = find_optimizer(train.optimizer);
    return row.ok() && !(*row)->states.empty() && !train.optimizer_options.has(state_type_option) &&
           std::ranges::none_of(train.groups, says);
  }

  // Nobody's folder gets files that nobody has asked for.
  bool has_memory_beside() const {
    const MemoryKind kind = memory_beside(*without_->device());
    return kind == MemoryKind::host || (kind == MemoryKind::file && options_.strategy.config.has("offload.folder"));
  }

  Keys keys_of(size_t number) const {
    Keys keys;
    size_t rest = combinations_;
    for (const Choice& choice : choices_) {
      rest /= choice.values.size();
      const Keys& chosen = choice.values[number / rest % choice.values.size()];
      keys.insert(keys.end(), chosen.begin(), chosen.end());
    }
    return keys;
  }

  // A combination that has less to do; itself if none is known.
  size_t before(size_t number) const {
    size_t rest = combinations_;
    for (const Choice& choice : choices_) {
      rest /= choice.values.size();
      const size_t digit = number / rest % choice.values.size();
      if (choice.takes_time && digit > 0) return number - digit * rest;
    }
    return number;
  }

  Status too_small() const {
    const Status status =
        over_budget(*without_, budget_, least_, nearest_.empty() ? "" : cat(", with ", text_of(nearest_)));
    const bool asks = memory_beside(*without_->device()) == MemoryKind::file &&
                      !options_.strategy.config.has("offload.folder") && !options_.strategy.config.has("offload.level");
    if (!asks) return status;
    return unsupported(status.message(), "; with offload.folder values may lie in files of that folder");
  }

  // What was chosen, and what it costs.
  std::string note() const {
    std::vector<std::string> chosen;
    if (!best_->keys.empty()) chosen.push_back(text_of(best_->keys));
    if (best_->fit.stays > 0) chosen.back() += cat(" (of which ", best_->fit.stays, " % stay where kernels compute)");
    if (best_->recomputes) chosen.push_back("what is computed again");
    std::string out = cat("memory.budget: ", join(chosen, ", with "));
    if (measured_.front()) {
      const double percent = std::round(1000 * (best_->seconds / measured_.front()->seconds - 1)) / 10;
      out += cat(" takes ", number_text(std::abs(percent)), percent < 0 ? " % less time" : " % more time",
                 " than no budget", best_->peak < without_peak_ ? ", which" : "");
    } else {
      out += best_->peak < without_peak_ ? " is taken; no budget" : " is taken";
    }
    if (best_->peak < without_peak_)
      out += cat(" needs ", grouped(without_peak_ - best_->peak), " bytes more on a rank");
    return out;
  }

  // One line for each choice. Of the keys, beside the combination that lacks this one alone; of what keeps to the
  // budget, beside its plan without a budget.
  void add_costs(std::vector<std::string>& notes) const {
    const Candidate& taken = *measured_[best_->number];
    size_t rest = combinations_;
    for (const Choice& choice : choices_) {
      rest /= choice.values.size();
      const size_t digit = best_->number / rest % choice.values.size();
      if (digit == 0) continue;
      const std::string keys = text_of(choice.values[digit]);
      const std::optional<Candidate>& lacks = measured_[best_->number - digit * rest];
      notes.push_back(lacks ? cost_text(keys, taken.seconds - lacks->seconds, lacks->peak - taken.peak)
                            : cat("memory.budget: no step was simulated without ", keys, " alone"));
    }
    const BudgetFit& fit = best_->fit;
    if (!fit.again && fit.stays == 0) return;
    const std::string stay = cat("the ", fit.stays, " % that stay");
    const std::string what = !fit.again       ? stay
                             : fit.stays == 0 ? "computing again"
                                              : cat("computing again, with ", stay);
    notes.push_back(cost_text(what, fit.seconds, taken.peak - best_->peak));
  }

  const Host& host_;
  const PlanOptions& options_;
  const int64_t budget_;
  SharedPlan without_;  // a budget
  int64_t without_peak_ = 0;
  std::vector<Choice> choices_;
  size_t combinations_ = 1;
  std::vector<std::optional<Candidate>> measured_;  // by number; none: it was not looked at, or is not possible
  std::vector<BudgetTrial> tried_;
  std::optional<Candidate> best_;
  const std::shared_ptr<SolvedRecompute> solved_ = nothing_solved();
  int64_t least_ = 0;  // that a rank has, of all that were looked at
  Keys nearest_;       // by which keys
};

}  // namespace

Result<std::shared_ptr<const CompiledPlan>> plan_within_budget(const Host& host, const PlanOptions& options) {
  EPL_ASSIGN(const int64_t budget, memory_budget(options.strategy));
  if (budget == 0 || options.decisions || !options.training) return CompiledPlan::create(host, options);
  return Choosing(host, options, budget).run();
}

}  // namespace epl
