#include "core/compile/budget.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/compile/plan_memory.h"
#include "core/strategy/node_cost.h"
#include "core/strategy/pass.h"
#include "core/strategy/recompute_stage.h"

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

namespace {

// Ways that are made, from least bytes to most.
constexpr int levels = 16;

// A way to compute results again.
struct Way {
  std::string passes;
  std::vector<Plan> plans;  // of each train entry
  double seconds = 0;       // more than without, of all of them
};

// The default ones, of which recompute has options.
std::string passes_with(const std::string& options) {
  static constexpr std::string_view pass = "recompute";
  std::string list = default_passes();
  return list.insert(list.find(pass) + pass.size(), cat("(", options, ")"));
}

class Fitting {
 public:
  Fitting(const CompiledPlan& plan, const EntryMaker& maker, int64_t budget, int64_t* least)
      : plan_(plan),
        maker_(maker),
        cost_(maker.device.machine()),
        of_rank_(of_threads(maker.device.machine(), maker.threads)),
        budget_(budget),
        least_(least),
        memory_(plan) {}

  Result<std::string> run() {
    int64_t least = 0;
    for (int c = 0; c < plan_.virtual_devices(); ++c) least = std::max(least, memory_.peak(c));
    if (least <= budget_) return std::string();
    // What the user has said is not changed.
    const std::string& type = maker_.options.strategy.text("gradient_checkpoint.type");
    if (type == "auto" || type == "collection") return missing(least);
    EPL_ASSIGN(const std::vector<Way> ways, all_ways());
    return search(ways);
  }

 private:
  // The fastest that fits, by halves. Which ways are looked at follows from the answers alone, so a larger budget never
  // ends behind a smaller one. The slowest says what fits at all.
  Result<std::string> search(const std::vector<Way>& ways) {
    if (ways.empty()) return missing(memory_.peak());
    size_t end = ways.size() - 1;
    EPL_ASSIGN(const int64_t least, peak_of(ways[end]));
    if (least > budget_) return missing(std::min(least, memory_.peak()));
    size_t begin = 0;
    while (begin < end) {
      const size_t middle = begin + (end - begin) / 2;
      EPL_ASSIGN(const int64_t peak, peak_of(ways[middle]));
      if (peak <= budget_) {
        end = middle;
      } else {
        begin = middle + 1;
      }
    }
    return ways[end].passes;
  }

  // By their time. Of several with the same nodes there is one.
  Result<std::vector<Way>> all_ways() {
    RecomputeRange range;
    for (const Entry& entry : plan_.entries()) {
      if (entry.kind != EntryKind::train) continue;
      const RecomputeRange own = recompute_range(entry.plan, cost_);
      range.least = std::max(range.least, own.least);
      range.most = std::max(range.most, own.most);
    }
    std::vector<Way> ways;
    for (int level = 0; level < levels; ++level) {
      const double bytes = range.least + (range.most - range.least) * level / levels;
      EPL_ASSIGN(Way way, way_of(cat("bytes=", static_cast<int64_t>(std::ceil(bytes)))));
      const auto same = [&](const Way& other) {
        return std::ranges::equal(other.plans, way.plans, {}, &Plan::node_recomputed, &Plan::node_recomputed);
      };
      if (way.seconds > 0 && std::ranges::none_of(ways, same)) ways.push_back(std::move(way));
    }
    std::ranges::stable_sort(ways, {}, &Way::seconds);
    return ways;
  }

  Result<Way> way_of(const std::string& options) {
    Way way{.passes = passes_with(options)};
    for (const Entry& entry : plan_.entries()) {
      if (entry.kind != EntryKind::train) continue;
      EPL_TRY(maker_.options.stop.check());
      Plan& made = way.plans.emplace_back(entry.plan);
      const Entry& first = plan_.entries().front();
      const PlanRequest request{.graph = made.graph,
                                .strategy = made.strategy,
                                .state_of = &entry == &first ? nullptr : &first.plan,
                                .machine = cost_.machine(),
                                .beside = memory_beside(maker_.device)};
      EPL_TRY(run_passes(made, request, cat("recompute(", options, "); offload")));
      for (const NodeId n : made.node_recomputed.ids()) {
        if (made.node_recomputed[n]) way.seconds += node_seconds(of_rank_, made, n, made.node_shardings[n]);
      }
    }
    return way;
  }

  // With what other entries take, and the state.
  Result<int64_t> peak_of(const Way& way) {
    std::vector<int64_t> arenas(static_cast<size_t>(plan_.virtual_devices()), 0);
    for (const Entry& entry : plan_.entries()) {
      for (size_t c = 0; c < arenas.size() && entry.kind != EntryKind::train; ++c)
        arenas[c] = std::max(arenas[c], entry.programs[c].memories[0].arena_bytes);
    }
    for (const Plan& plan : way.plans) {
      EPL_ASSIGN(const Lowered made, lower_plan(maker_, plan));
      for (size_t c = 0; c < arenas.size(); ++c)
        arenas[c] = std::max(arenas[c], made.programs[c].memories[0].arena_bytes);
    }
    int64_t peak = 0;
    for (size_t c = 0; c < arenas.size(); ++c) {
      const int at = static_cast<int>(c);
      peak = std::max(peak, memory_.peak(at) - memory_.arena(at) + arenas[c]);
    }
    return peak;
  }

  Status missing(int64_t least) {
    if (least_) *least_ = least;
    return over_budget(plan_, budget_, least);
  }

  const CompiledPlan& plan_;
  const EntryMaker& maker_;
  const CostModel cost_, of_rank_;  // by which is decided, and with all threads of a rank
  const int64_t budget_;
  int64_t* const least_;
  const PlanMemory memory_;
};

}  // namespace

Result<std::string> passes_within(const CompiledPlan& plan, const EntryMaker& maker, int64_t budget, int64_t* least) {
  return Fitting(plan, maker, budget, least).run();
}

double seconds_again(const CompiledPlan& plan) {
  const CostModel cost(of_threads(plan.device()->machine(), plan.threads_per_rank()));
  double all = 0;
  for (const Entry& entry : plan.entries()) {
    if (entry.kind != EntryKind::train) continue;
    const Plan& train = entry.plan;
    double seconds = 0;
    for (const NodeId n : train.node_recomputed.ids()) {
      if (train.node_recomputed[n]) seconds += node_seconds(cost, train, n, train.node_shardings[n]);
    }
    all += seconds * static_cast<double>(train.micro_batches()) / train.stages();
  }
  return all / plan.shapes();
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
  return trial.again ? cat(keys, ", with results computed again") : keys;
}

void take_chosen(Strategy& strategy, const Strategy& chosen) {
  if (strategy.text("memory.budget").empty()) return;
  for (const char* key : {"zero.level", "offload.level", "offload.values", "pipeline.num_micro_batch"}) {
    const Attribute* there = chosen.config.find(key);
    if (there && !strategy.config.has(key)) strategy.config.set(key, *there);
  }
}

namespace {

constexpr std::string_view check_gradients = "gradient_checkpoint.check_gradients";

}  // namespace

// Where a plan does not fit into its budget, another one is made that computes results again. Processes may have other
// numbers of threads, and must decide alike: they decide for one thread a rank.
Status CompiledPlan::keep_to_budget(const Host& host, const PlanOptions& given, int64_t budget, int64_t* least,
                                    std::shared_ptr<CompiledPlan>& plan) {
  const bool decides_alike = given.over_processes() && given.threads == 0 && plan->threads_ > 1;
  const int wanted = plan->threads_;
  PlanOptions options = given;
  if (decides_alike) {
    options.threads = 1;
    EPL_ASSIGN(plan, compile(host, options, {}));
  }
  std::string passes;
  if (given.decisions && PlanMemory(*plan).peak() > budget)
    return unsupported("memory.budget allows ", grouped(budget), " bytes, and by the plan file a rank has ",
                       grouped(PlanMemory(*plan).peak()), " here; make the plan anew");
  if (!given.decisions) {
    EPL_ASSIGN(passes, passes_within(*plan, plan->maker(plan->loss_), budget, least));
    if (!passes.empty() && plan->options_.strategy.flag(check_gradients))
      return unsupported(check_gradients,
                         " computes a first step with nothing computed again, and memory.budget = ", grouped(budget),
                         " has no room for that; check without a budget, with ", "gradient_checkpoint.type = auto");
    if (!passes.empty()) {
      EPL_ASSIGN(plan, compile(host, options, passes));
    }
  }
  if (decides_alike) {
    options.threads = wanted;
    EPL_ASSIGN(plan, with_most_threads(host, options, passes, budget));
  }
  const int64_t peak = PlanMemory(*plan).peak();
  EPL_CHECK(peak <= budget, "a plan of ", peak, " bytes for a budget of ", budget);
  if (given.decisions) return {};
  const auto recomputes = [](const Entry& entry) { return !entry.plan.node_recomputed.empty(); };
  std::vector<std::string> notes = given.notes;
  notes.push_back(cat("memory.budget: a rank has at most ", grouped(peak), " of ", grouped(budget), " bytes",
                      std::ranges::any_of(plan->entries_, recomputes) ? "" : ", and nothing is computed again"));
  if (plan->threads_ < wanted)
    notes.push_back(cat("memory.budget: a rank has ", plan->threads_, " of the ", wanted,
                        " threads that there are for it, because kernels on more of them need more bytes"));
  for (Entry& entry : plan->entries_) {
    if (entry.kind == EntryKind::train) entry.plan.notes.insert(entry.plan.notes.end(), notes.begin(), notes.end());
  }
  return {};
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
