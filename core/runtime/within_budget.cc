#include "core/runtime/within_budget.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/compile/budget.h"
#include "core/compile/plan_memory.h"
#include "core/runtime/rehearsal.h"

namespace epl {
namespace {

using SharedPlan = std::shared_ptr<const CompiledPlan>;

// Keys and their values, as a user writes them.
using Keys = std::vector<std::pair<std::string, std::string>>;

std::string text_of(const Keys& keys) {
  std::vector<std::string> out;
  for (const auto& [key, value] : keys) out.push_back(cat(key, " = ", value));
  return join(out, ", ");
}

// A plan that is possible, and a step of it.
struct Candidate {
  Keys keys;
  SharedPlan plan;
  int64_t peak = 0;
  // Rehearsed without a budget, and what is computed again for one: ways to do so are in this order.
  double seconds = 0;
};

class Choosing {
 public:
  Choosing(const Host& host, const PlanOptions& options, int64_t budget)
      : host_(host), options_(options), budget_(budget) {}

  Result<SharedPlan> run() {
    EPL_ASSIGN(const Candidate without, candidate({}, false));
    EPL_ASSIGN(std::vector<Candidate> candidates, all_candidates(without));
    std::optional<Candidate> best;
    int64_t least = without.peak;
    Keys nearest;
    std::vector<BudgetTrial> tried;
    size_t taken = 0;
    for (Candidate& one : candidates) {
      BudgetTrial& trial =
          tried.emplace_back(BudgetTrial{.keys = text_of(one.keys), .peak = one.peak, .seconds = one.seconds});
      // What is computed again takes time as well.
      if (best && one.seconds >= best->seconds) continue;
      if (one.peak > budget_) {
        trial.again = true;
        auto fitted = candidate(one.keys, true, &trial.peak);
        if (trial.peak < least) nearest = one.keys;
        least = std::min(least, trial.peak);
        if (!fitted.ok()) {
          if (fitted.status().code() != Code::unsupported) return fitted.status();
          trial.outcome = BudgetTrial::Outcome::too_large;
          continue;
        }
        fitted->seconds = one.seconds + seconds_again(*fitted->plan);
        one = *std::move(fitted);
        trial.peak = one.peak;
        trial.seconds = one.seconds;
      }
      trial.outcome = BudgetTrial::Outcome::fits;
      if (best && one.seconds >= best->seconds) continue;
      taken = tried.size() - 1;
      best = std::move(one);
    }
    // What is missing is not bytes: such a plan has its own reason.
    if (!best && options_.strategy.flag("gradient_checkpoint.check_gradients"))
      return CompiledPlan::create(host_, options_);
    if (!best) {
      const std::string with = nearest.empty() ? "" : cat(", with ", text_of(nearest));
      return over_budget(*without.plan, budget_, least, with);
    }
    tried[taken].outcome = BudgetTrial::Outcome::taken;
    PlanOptions chosen = with(best->keys, true);
    chosen.tried = std::move(tried);
    if (!best->keys.empty() || best->peak < without.peak) chosen.notes.push_back(note(without, *best));
    return CompiledPlan::create(host_, chosen);
  }

 private:
  PlanOptions with(const Keys& keys, bool budget) const {
    PlanOptions out = options_;
    if (!budget) {
      out.strategy.config.erase("memory.budget");
      // Says no more than that there is a budget.
      constexpr const char* type = "gradient_checkpoint.type";
      if (out.strategy.text(type) == "budget") out.strategy.config.erase(type);
    }
    for (const auto& [key, value] : keys) {
      const Status set = set_config(out.strategy, key, value);
      EPL_CHECK(set.ok(), set.to_string());
    }
    return out;
  }

  // `least`: as of CompiledPlan::create.
  Result<Candidate> candidate(const Keys& keys, bool budget, int64_t* least = nullptr) const {
    EPL_TRY(options_.stop.check());
    Candidate out{.keys = keys};
    EPL_ASSIGN(out.plan, CompiledPlan::create(host_, with(keys, budget), least));
    out.peak = PlanMemory(*out.plan).peak();
    if (budget) return out;
    EPL_ASSIGN(const Rehearsal rehearsal, rehearse(host_, out.plan));
    out.seconds = rehearsal.trace.end() - rehearsal.trace.begin();
    return out;
  }

  // What each key may be that the strategy leaves open; the first choice of each is none.
  std::vector<std::vector<Keys>> choices(const Candidate& without) const {
    const auto open = [&](const char* key) { return !options_.strategy.config.has(key); };
    std::vector<std::vector<Keys>> out;
    if (options_.ranks > 1 && open("zero.level")) out.push_back({{}, {{"zero.level", "v1"}}, {{"zero.level", "v2"}}});
    if (open("offload.level") && open("offload.values") && has_memory_beside(*without.plan)) {
      out.push_back({{},
                     {{"offload.level", "v0"}, {"offload.values", "states"}},
                     {{"offload.level", "v0"}, {"offload.values", "states, weights, gradients, activations"}}});
    }
    // Independent micro-batches are part of the mathematics.
    const bool is_global = options_.strategy.text("batch.semantics") == "global";
    if (open("pipeline.num_micro_batch") && is_global)
      out.push_back({{}, {{"pipeline.num_micro_batch", "2"}}, {{"pipeline.num_micro_batch", "4"}}});
    return out;
  }

  static bool has_memory_beside(const CompiledPlan& plan) {
    const std::shared_ptr<Device> device = plan.device();
    return memory_beside(*device) != MemoryKind::device;
  }

  // All combinations that are possible, by the time of their steps.
  Result<std::vector<Candidate>> all_candidates(const Candidate& without) const {
    std::vector<Keys> combined = {{}};
    for (const std::vector<Keys>& of_one : choices(without)) {
      std::vector<Keys> next;
      for (const Keys& keys : combined) {
        for (const Keys& more : of_one) {
          next.push_back(keys);
          next.back().insert(next.back().end(), more.begin(), more.end());
        }
      }
      combined = std::move(next);
    }
    std::vector<Candidate> out;
    for (const Keys& keys : combined) {
      if (keys.empty()) {
        out.push_back(without);
        continue;
      }
      // A batch that micro-batches do not divide, or a model for which a key is not possible.
      auto one = candidate(keys, false);
      EPL_TRY(options_.stop.check());
      if (one.ok()) out.push_back(*std::move(one));
    }
    std::ranges::stable_sort(out, {}, &Candidate::seconds);
    return out;
  }

  // What was chosen, and what it costs.
  static std::string note(const Candidate& without, const Candidate& best) {
    const auto recomputed = [](const Entry& entry) { return !entry.plan.node_recomputed.empty(); };
    std::vector<std::string> chosen;
    if (!best.keys.empty()) chosen.push_back(text_of(best.keys));
    if (std::ranges::any_of(best.plan->entries(), recomputed)) chosen.push_back("what is computed again");
    const double percent = std::round(1000 * (best.seconds / without.seconds - 1)) / 10;
    std::string out = cat("memory.budget: ", join(chosen, ", with "), " takes ", number_text(std::abs(percent)),
                          percent < 0 ? " % less time" : " % more time", " than no budget");
    if (best.peak < without.peak)
      out += cat(", which needs ", grouped(without.peak - best.peak), " bytes more on a rank");
    return out;
  }

  const Host& host_;
  const PlanOptions& options_;
  const int64_t budget_;
};

}  // namespace

Result<std::shared_ptr<const CompiledPlan>> plan_within_budget(const Host& host, const PlanOptions& options) {
  EPL_ASSIGN(const int64_t budget, memory_budget(options.strategy));
  if (budget == 0 || options.decisions || !options.training) return CompiledPlan::create(host, options);
  return Choosing(host, options, budget).run();
}

}  // namespace epl
