#include "bench/plans/published.h"

#include <algorithm>
#include <ctime>

#include "bench/plans/defaults.h"
#include "core/strategy/search_step.h"

namespace epl::plans {
namespace {

// Narayanan and others, 2021, table 2: eight ways of a split and twelve stages, on 768 and 1,536 GPUs. MegaScale (Jiang
// and others, 2024), section 6.1: eight of both, six runs of layers each. "The Llama 3 Herd of Models", table 4: 16
// stages, gradients shared out. Whale (Jia and others, 2022): experts over all ranks, with Adafactor, whose states are
// next to nothing. M6-10T (Lin and others, 2021) has weights in the hosts' memory beside that. Rows with "as" have the
// layout of another number of GPUs.
constexpr Published all_published[] = {
    {.source = "Megatron-LM 2021",
     .pair = {"gpt-175b", "a100", 768, 1536},
     .tensor = 8,
     .stages = 12,
     .schedule = "interleaved",
     .chunks = 2,
     .way = -1},
    {.source = "as Megatron-LM 2021, 16 stages",
     .pair = {"gpt-175b", "a100", 1024, 1536},
     .tensor = 8,
     .stages = 16,
     .schedule = "interleaved",
     .chunks = 2,
     .way = -1},
    {.source = "MegaScale 2024",
     .pair = {"gpt-175b", "a100", 12288, 6144},
     .tensor = 8,
     .stages = 8,
     .schedule = "interleaved",
     .chunks = 6,
     .shards = SearchShards::states},
    {.source = "as MegaScale 2024",
     .pair = {"gpt-175b", "a100", 16384, 8192},
     .tensor = 8,
     .stages = 8,
     .schedule = "interleaved",
     .chunks = 6,
     .shards = SearchShards::states},
    {.source = "Llama 3 2024",
     .pair = {"llama-405b", "h100", 16384, 2048},
     .tensor = 8,
     .stages = 16,
     .schedule = "1F1B",
     .shards = SearchShards::gradients},
    {.source = "Llama 3 2024, interleaved",
     .pair = {"llama-405b", "h100", 16384, 2048},
     .tensor = 8,
     .stages = 16,
     .schedule = "interleaved",
     .chunks = 2,
     .shards = SearchShards::gradients},
    {.source = "Whale 2022, a trillion parameters",
     .pair = {"m6-moe-1t", "v100", 480, 3840},
     .experts = 480,
     .samples = 8,
     .way = -1,
     .states = 0},
    {.source = "M6-10T 2021",
     .pair = {"m6-moe-10t", "v100", 512, 4096},
     .experts = 512,
     .samples = 8,
     .way = -1,
     .states = 0,
     .offload = SearchOffload::weights},
};
constexpr double slow_ranks = 0.01, slower = 1.2;

SearchCandidate plan_of(const Published& row, const SearchProblem& problem) {
  SearchCandidate plan;
  for (size_t f = 0; f < problem.forms.size(); ++f) {
    const SearchForm& form = problem.forms[f];
    if (form.ranks == row.tensor && form.experts == row.experts) plan.form = f;
  }
  plan.row = row.stages > 1 ? find_pipeline(row.schedule) : &one_stage();
  plan.stages = static_cast<int>(row.stages);
  plan.chunks = row.chunks;
  plan.copies = problem.ranks / row.tensor / row.stages;
  plan.micro_batches = problem.batch / plan.copies / row.samples;
  plan.shards = row.shards;
  plan.offload = row.offload;
  plan.begins = even_begins(static_cast<int64_t>(problem.layers.size()) - 2, row.stages * row.chunks);
  for (const int kind : problem.layers) {
    const auto ways = static_cast<int>(problem.forms[plan.form].kinds[kind].again.size());
    plan.again.push_back(row.way < 0 ? ways : std::min(row.way, ways));
  }
  return plan;
}

}  // namespace

std::span<const Published> published() { return all_published; }

Result<Scaled> compare_published(const Published& row, const std::string& folder) {
  EPL_ASSIGN(SearchProblem problem, problem_of(row.pair, folder));
  if (row.states >= 0) problem.states = row.states;
  const SearchCandidate theirs = plan_of(row, problem);
  if (!is_possible(problem, theirs)) return invalid(row.source, " is no plan of the search");
  const SearchCost cost = cost_of(problem, theirs);
  Scaled out;
  out.theirs = {row.source, theirs, simulate_step(problem, theirs).seconds, cost.seconds};
  out.fits = is_within_limits(problem, cost);
  EPL_ASSIGN(out.picked, pick(problem));
  const std::clock_t begin = std::clock();
  const SearchStep step = simulate_step(problem, out.picked.candidate, {.share = slow_ranks, .slower = slower});
  out.simulation_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  out.with_stragglers = step.seconds;
  out.calls = step.calls;
  return out;
}

}  // namespace epl::plans
