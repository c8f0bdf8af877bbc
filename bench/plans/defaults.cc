#include "bench/plans/defaults.h"

#include <algorithm>

namespace epl::plans {
namespace {

constexpr Default all_defaults[] = {
    {.name = "copies", .source = "PyTorch DDP (Li and others, 2020)"},
    {.name = "copies, computed again", .source = "DDP with checkpoints (Chen and others, 2016)", .again = true},
    {.name = "ZeRO-1", .source = "ZeRO (Rajbhandari and others, 2020)", .shards = SearchShards::states},
    {.name = "ZeRO-2", .source = "ZeRO", .shards = SearchShards::gradients},
    {.name = "ZeRO-3", .source = "ZeRO; FSDP (Zhao and others, 2023)", .shards = SearchShards::weights},
    {.name = "ZeRO-3, computed again", .source = "FSDP", .shards = SearchShards::weights, .again = true},
    {.name = "ZeRO-2, states in the host, computed again",
     .source = "ZeRO-Offload (Ren and others, 2021)",
     .shards = SearchShards::gradients,
     .offload = SearchOffload::states,
     .again = true},
    {.name = "stages, 1F1B", .source = "PipeDream (Narayanan and others, 2019)", .schedule = "1F1B"},
    {.name = "stages, 1F1B, computed again",
     .source = "GPipe's memory, PipeDream's order",
     .schedule = "1F1B",
     .again = true},
    {.name = "split", .source = "Megatron-LM (Shoeybi and others, 2019)", .splits = true},
    {.name = "split, computed again, ZeRO-1",
     .source = "Megatron-LM",
     .splits = true,
     .shards = SearchShards::states,
     .again = true},
    {.name = "split, then stages, 1F1B",
     .source = "Megatron-LM (Narayanan and others, 2021)",
     .splits = true,
     .schedule = "1F1B"},
    {.name = "split, then stages, 1F1B, computed again",
     .source = "the same",
     .splits = true,
     .schedule = "1F1B",
     .again = true},
    {.name = "split, then stages, interleaved",
     .source = "the same",
     .splits = true,
     .schedule = "interleaved",
     .chunks = 2},
    {.name = "split, then stages, interleaved, computed again",
     .source = "the same",
     .splits = true,
     .schedule = "interleaved",
     .chunks = 2,
     .again = true},
    {.name = "split, then stages, 1F1B, ZeRO-1",
     .source = "Megatron-LM's distributed optimizer",
     .splits = true,
     .schedule = "1F1B",
     .shards = SearchShards::states},
    {.name = "split, then stages, interleaved, ZeRO-1",
     .source = "the same",
     .splits = true,
     .schedule = "interleaved",
     .chunks = 2,
     .shards = SearchShards::states},
    {.name = "experts", .source = "GShard (Lepikhin and others, 2020)", .experts = true},
    {.name = "experts, computed again", .source = "GShard", .again = true, .experts = true},
    {.name = "experts, ZeRO-1",
     .source = "DeepSpeed-MoE (Rajbhandari and others, 2022)",
     .shards = SearchShards::states,
     .experts = true},
    {.name = "experts, ZeRO-2, computed again",
     .source = "DeepSpeed-MoE",
     .shards = SearchShards::gradients,
     .again = true,
     .experts = true},
};

// -1: there is none.
int form_of(const Default& row, const SearchProblem& problem, int64_t host) {
  int found = -1;
  for (int f = 0; f < std::ssize(problem.forms); ++f) {
    const SearchForm& form = problem.forms[f];
    if (row.experts ? form.experts > 1 && problem.ranks % form.experts == 0
                    : form.experts == 1 && form.ranks <= host && (form.ranks > 1) == row.splits)
      found = f;  // the last one has the most
  }
  return found;
}

void compute_again(const SearchProblem& problem, SearchCandidate& plan) {
  for (size_t l = 0; l < problem.layers.size(); ++l)
    plan.again[l] = static_cast<int>(problem.forms[plan.form].kinds[problem.layers[l]].again.size());
}

// The fewest micro-batches of which there are four for each stage, else one sample for each call.
bool fits(const SearchProblem& problem, SearchCandidate& plan) {
  const int64_t each = problem.batch / plan.copies;
  const int64_t wanted = plan.stages > 1 ? std::min<int64_t>(each, 4 * plan.stages) : 1;
  for (plan.micro_batches = wanted; plan.micro_batches <= each; ++plan.micro_batches) {
    if (each % plan.micro_batches != 0 || !is_possible(problem, plan)) continue;
    if (is_within_limits(problem, cost_of(problem, plan))) return true;
  }
  return false;
}

}  // namespace

std::span<const Default> defaults() { return all_defaults; }

std::vector<int> even_begins(int64_t layers, int64_t runs) {
  std::vector<int> begins = {0};
  for (int64_t r = 1; r < runs; ++r) begins.push_back(static_cast<int>(1 + r * layers / runs));
  return begins;
}

std::optional<SearchCandidate> plan_of(const Default& row, const SearchProblem& problem, int64_t host) {
  const int form = form_of(row, problem, host);
  if (form < 0) return {};
  SearchCandidate plan;
  plan.form = static_cast<size_t>(form);
  plan.row = &one_stage();
  plan.chunks = row.chunks;
  plan.shards = row.shards;
  plan.offload = row.offload;
  plan.again.assign(problem.layers.size(), 0);
  if (row.again) compute_again(problem, plan);
  const bool staged = *row.schedule != '\0';
  if (staged) plan.row = find_pipeline(row.schedule);
  const auto layers = static_cast<int64_t>(problem.layers.size()) - 2;
  const int64_t groups = problem.ranks / problem.forms[plan.form].ranks;
  for (int64_t stages = staged ? 2 : 1; stages <= (staged ? groups : 1); ++stages) {
    if (groups % stages != 0 || stages * row.chunks > layers) continue;
    plan.stages = static_cast<int>(stages);
    plan.copies = groups / stages;
    if (problem.batch % plan.copies != 0) continue;
    plan.begins = even_begins(layers, stages * row.chunks);
    if (fits(problem, plan)) return plan;
  }
  return {};
}

}  // namespace epl::plans
