// The fastest way in which a plan that was made without a budget fits into one.
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/compile/budget.h"
#include "core/compile/budget_ways.h"
#include "core/compile/plan_memory.h"
#include "core/program/memory.h"
#include "core/strategy/node_cost.h"
#include "core/strategy/pass.h"
#include "core/strategy/recompute_stage.h"

namespace epl {
namespace {

constexpr std::string_view check_gradients = "gradient_checkpoint.check_gradients";
// How often results are computed again in a different way, from least bytes to most.
constexpr int levels = 16;
constexpr int shares[] = {0, 25, 50, most_that_stays};
// Of the nodes of a plan times its ways: to lower that many takes a few seconds. It does not depend on the budget, so
// all budgets of a plan have one rule.
constexpr size_t most_weighed = 20000;

// The default ones, of which recompute and offload have options.
std::string passes_with(const std::string& again, int stays) {
  std::string list = default_passes();
  const auto add = [&](std::string_view pass, const std::string& options) {
    if (!options.empty()) list.insert(list.find(pass) + pass.size(), cat("(", options, ")"));
  };
  add("recompute", again);
  add("offload", stays > 0 ? cat("stays=", stays) : std::string());
  return list;
}

// That a step computes again.
double step_seconds(const CostModel& cost, const Plan& plan) {
  double seconds = 0;
  for (const NodeId n : plan.node_recomputed.ids()) {
    if (plan.node_recomputed[n]) seconds += node_seconds(cost, plan, n, plan.node_shardings[n]);
  }
  return seconds * static_cast<double>(plan.micro_batches()) / plan.stages();
}

class Fitting {
 public:
  Fitting(const CompiledPlan& plan, const EntryMaker& maker, const FitRequest& request, int64_t* least)
      : plan_(plan),
        maker_(maker),
        cost_(maker.device.machine()),
        of_rank_(of_threads(maker.device.machine(), maker.threads)),
        budget_(request.budget),
        moving_(request.moving),
        most_seconds_(request.most_seconds),
        least_(least),
        memory_(plan),
        solved_(maker.options.solved ? *maker.options.solved : own_solved_) {}

  // The way with least bytes says what fits at all: where it does not fit, no other is taken, nor made without need.
  Result<BudgetFit> run() {
    const BudgetFit as_it_is{.peak = memory_.peak()};
    const bool fits = as_it_is.peak <= budget_;
    if (fits && moving_ <= 0) return as_it_is;
    EPL_TRY(find_least());
    const bool limited = std::isfinite(most_seconds_);
    if (!limited) {
      EPL_TRY(weigh_smallest());
      if (least_peak_ > budget_) return answer(as_it_is);
    }
    EPL_TRY(find_others());
    const std::vector<Way> ways = all_ways();
    const auto is_fast = [&](const Way& way) { return way.seconds < most_seconds_; };
    const auto fast = static_cast<size_t>(std::ranges::count_if(ways, is_fast));
    if (limited) {
      if (fast == 0) return fits ? as_it_is : slower();
      EPL_TRY(weigh_smallest());
      if (least_peak_ > budget_) return answer(as_it_is);
    }
    EPL_ASSIGN(const BudgetFit found, search(ways, fast));
    return fits && found.seconds >= 0 ? as_it_is : found;
  }

 private:
  // What is computed again.
  struct Again {
    std::string options;      // of the pass; empty: nothing
    std::vector<Plan> plans;  // of each train entry
    double seconds = 0;       // of a step
    double bytes = 0;         // at the peak, by the solver
  };
  struct Way {
    size_t again = 0;
    int stays = 0;
    double seconds = 0, bytes = 0;  // of a step, more than the plan as it is; at the peak, about
  };

  // Where nothing that is made smaller fits.
  Result<BudgetFit> answer(const BudgetFit& as_it_is) {
    if (as_it_is.peak <= budget_) return as_it_is;
    return missing(std::min(least_peak_, as_it_is.peak));
  }

  Status weigh_smallest() {
    EPL_ASSIGN(least_peak_, peak_of(smallest()));
    return {};
  }

  // The fastest that fits, where the last one does.
  Result<BudgetFit> search(const std::vector<Way>& ways, size_t fast) {
    const auto weigh = [&](size_t way) { return peak_of(ways[way]); };
    const WaysWithin within{
        .count = ways.size(), .fast = fast, .budget = budget_, .least = least_peak_, .weigh = weigh};
    size_t nodes = 0;
    for (const Entry& entry : plan_.entries()) nodes += static_cast<size_t>(entry.plan.graph->node_count());
    const auto rule = nodes * ways.size() <= most_weighed ? first_within : within_by_halves;
    EPL_ASSIGN(const std::optional<WayTaken> taken, rule(within));
    if (!taken) return slower();
    const Way& way = ways[taken->way];
    const Again& again = again_[way.again];
    BudgetFit fit{.again = way.again > 0, .stays = way.stays, .peak = taken->peak, .seconds = way.seconds};
    if (fit.again || fit.stays > 0) fit.passes = passes_with(again.options, fit.stays);
    return fit;
  }

  static BudgetFit slower() { return {.seconds = std::numeric_limits<double>::infinity()}; }

  // Of which find_least knows.
  Way smallest() const {
    const size_t again = std::min<size_t>(again_.size() - 1, 1);
    return {again, 0, again_[again].seconds, again_[again].bytes};
  }

  // Those that no other beats, by their time. The smallest comes last.
  std::vector<Way> all_ways() const {
    std::vector<Way> all, best;
    const double moved = moved_bytes();
    for (size_t a = 0; a < again_.size(); ++a) {
      for (const int stays : shares) {
        if (stays > 0 && moving_ <= 0) continue;
        const double share = stays / 100.0;
        all.push_back({a, stays, again_[a].seconds - share * moving_, again_[a].bytes + share * moved});
      }
    }
    std::ranges::stable_sort(all, {}, [](const Way& way) { return std::pair(way.seconds, way.bytes); });
    for (const Way& way : all) {
      if (best.empty() || way.bytes < best.back().bytes) best.push_back(way);
    }
    if (best.back().again != smallest().again || best.back().stays > 0) best.push_back(smallest());
    return best;
  }

  // Nothing, and what leaves least bytes.
  Status find_least() {
    Again none;
    for (const Entry& entry : plan_.entries()) {
      if (entry.kind == EntryKind::train) none.plans.push_back(entry.plan);
    }
    again_.push_back(std::move(none));
    // What the user has said is not changed.
    const std::string& type = maker_.options.strategy.text("gradient_checkpoint.type");
    if (type == "auto" || type == "collection") return {};
    for (const Plan& plan : again_.front().plans) {
      const RecomputeRange own = recompute_range(plan, cost_, solved_);
      range_.least = std::max(range_.least, own.least);
      range_.most = std::max(range_.most, own.most);
    }
    again_.front().bytes = range_.most;
    return add_again(range_.least);
  }

  Status find_others() {
    for (int level = 1; level < levels && again_.size() > 1; ++level)
      EPL_TRY(add_again(range_.least + (range_.most - range_.least) * level / levels));
    return {};
  }

  static bool same_nodes(const Again& one, const Again& other) {
    return std::ranges::equal(one.plans, other.plans, {}, &Plan::node_recomputed, &Plan::node_recomputed);
  }

  // Of several with the same nodes there is one.
  Status add_again(double bytes) {
    Again again{.options = cat("bytes=", static_cast<int64_t>(std::ceil(bytes))), .bytes = bytes};
    for (const Plan& plan : again_.front().plans) {
      EPL_TRY(maker_.options.stop.check());
      Plan& made = again.plans.emplace_back(plan);
      EPL_TRY(run_passes(made, request_of(made, nullptr), cat("recompute(", again.options, ")")));
      again.seconds += step_seconds(of_rank_, made) / plan_.shapes();
    }
    const auto same = [&](const Again& other) { return same_nodes(other, again); };
    if (again.seconds > 0 && std::ranges::none_of(again_, same)) again_.push_back(std::move(again));
    return {};
  }

  PlanRequest request_of(const Plan& plan, const Plan* state_of) const {
    return {.graph = plan.graph,
            .strategy = plan.strategy,
            .state_of = state_of,
            .machine = cost_.machine(),
            .beside = memory_beside(maker_.device),
            .solved = &solved_};
  }

  // That would lie in another memory.
  double moved_bytes() const {
    const Plan& plan = plan_.entries().front().plan;
    double bytes = 0;
    for (const Value v : plan.value_memory.ids()) {
      if (plan.value_memory[v] != MemoryKind::device)
        bytes += local_bytes(plan, std::max(plan.value_task_graph[v], 0), plan.graph->type(v), plan.shardings[v]);
    }
    return bytes;
  }

  // With what other entries take, and the state.
  Result<int64_t> peak_of(const Way& way) {
    if (way.again == 0 && way.stays == 0) return memory_.peak();
    std::vector<int64_t> arenas(static_cast<size_t>(plan_.virtual_devices()), 0);
    std::optional<Plan> first;
    size_t train = 0;
    for (const Entry& entry : plan_.entries()) {
      const bool trains = entry.kind == EntryKind::train;
      if (!trains && (way.stays == 0 || entry.plan.value_memory.empty())) {
        for (size_t c = 0; c < arenas.size(); ++c)
          arenas[c] = std::max(arenas[c], entry.programs[c].memories[0].arena_bytes);
        continue;
      }
      EPL_TRY(maker_.options.stop.check());
      Plan made = trains ? again_[way.again].plans[train++] : entry.plan;
      EPL_TRY(run_passes(made, request_of(made, first ? &*first : nullptr), cat("offload(stays=", way.stays, ")")));
      EPL_ASSIGN(const Lowered lowered, lower_plan(maker_, made));
      for (size_t c = 0; c < arenas.size(); ++c)
        arenas[c] = std::max(arenas[c], lowered.programs[c].memories[0].arena_bytes);
      if (!first) first = std::move(made);
    }
    int64_t peak = 0;
    for (size_t c = 0; c < arenas.size(); ++c) {
      const int at = static_cast<int>(c);
      peak = std::max(peak, memory_.peak(at) - memory_.arena(at) + arenas[c] + state_that_stays(at, *first));
    }
    return peak;
  }

  int64_t state_that_stays(int c, const Plan& made) const {
    int64_t bytes = 0;
    for (const StateSlot& slot : plan_.state_of(c).slots()) {
      if (slot.memory == MemoryKind::device || slot.is_represented()) continue;
      const Value v = made.graph->find(slot.name);
      if (v && (made.value_memory.empty() || made.value_memory[v] == MemoryKind::device))
        bytes += aligned_bytes(slot.local.bytes());
    }
    return bytes;
  }

  Status missing(int64_t least) {
    if (least_) *least_ = least;
    return over_budget(plan_, budget_, least);
  }

  const CompiledPlan& plan_;
  const EntryMaker& maker_;
  const CostModel cost_, of_rank_;  // by which is decided, and with all threads of a rank
  const int64_t budget_;
  const double moving_, most_seconds_;
  int64_t* const least_;
  const PlanMemory memory_;
  SolvedRecompute own_solved_;
  SolvedRecompute& solved_;
  RecomputeRange range_;
  int64_t least_peak_ = 0;    // of the way with least bytes; 0: it is not known
  std::vector<Again> again_;  // first nothing, then what leaves least bytes, if that is anything
};

}  // namespace

Result<BudgetFit> fit_within(const CompiledPlan& plan, const FitRequest& request, int64_t* least) {
  PlanOptions options = plan.options();
  options.stop = request.stop;
  options.solved = request.solved;
  const EntryMaker maker{.options = options,
                         .device = *plan.device(),
                         .threads = plan.threads_per_rank(),
                         .loss = plan.loss(),
                         .before = plan.entries()};
  EPL_ASSIGN(BudgetFit fit, Fitting(plan, maker, request, least).run());
  if (fit.again && options.strategy.flag(check_gradients))
    return unsupported(check_gradients, " computes a first step with nothing computed again, and memory.budget = ",
                       grouped(request.budget), " has no room for that; check without a budget, with ",
                       "gradient_checkpoint.type = auto");
  return fit;
}

std::shared_ptr<SolvedRecompute> nothing_solved() { return std::make_shared<SolvedRecompute>(); }

double seconds_again(const CompiledPlan& plan) {
  const CostModel cost(of_threads(plan.device()->machine(), plan.threads_per_rank()));
  double all = 0;
  for (const Entry& entry : plan.entries()) {
    if (entry.kind == EntryKind::train) all += step_seconds(cost, entry.plan);
  }
  return all / plan.shapes();
}

}  // namespace epl
