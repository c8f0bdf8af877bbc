// The keys of a strategy on one side, numbers of a search on the other.
#include "core/compile/search_keys.h"

#include <algorithm>
#include <bit>
#include <set>

#include "core/base/check.h"
#include "core/base/text.h"

namespace epl {
namespace {

constexpr std::string_view searches = "auto.auto_parallel", sequence_key = "split.sequence",
                           levels_key = "communication.hierarchical";
constexpr int64_t most_split = 8;        // of ranks; more would be of several hosts
constexpr int64_t most_experts = 512;    // of ranks that share them out
constexpr size_t most_expert_forms = 6;  // each is a plan that is made and rehearsed
constexpr std::string_view experts_word = "experts";

// That a candidate sets, and that layers are measured without.
constexpr const char* searched_keys[] = {"pipeline.num_stages",      "pipeline.strategy", "pipeline.virtual_stages",
                                         "pipeline.num_micro_batch", "zero.level",        "offload.level",
                                         "offload.values",           "memory.budget"};
// Layers are measured without these as well: they belong to the others.
constexpr const char* with_searched_keys[] = {"offload.folder",
                                              "memory.allow_state_type",
                                              "communication.max_splits",
                                              "gradient_checkpoint.type",
                                              "gradient_checkpoint.tensors",
                                              "gradient_checkpoint.end_taskgraph",
                                              "gradient_checkpoint.check_gradients",
                                              "batch.order",
                                              "batch.semantics",
                                              searches.data()};

void set_open(Strategy& strategy, std::string_view key, const std::string& value) {
  if (strategy.config.has(key)) return;
  const Status set = set_config(strategy, key, value);
  EPL_CHECK(set.ok(), set.to_string());
}

void split_all(Strategy& strategy, int64_t split, bool sequence) {
  strategy.has_default = true;
  strategy.default_scope.kind = ScopeKind::split;
  strategy.default_scope.device_count = split;
  if (sequence) set_open(strategy, sequence_key, "true");
}

// All else has copies, each of one rank.
void share_experts(Strategy& strategy, const std::string& pattern, int64_t experts) {
  strategy.has_default = true;
  Scope& scope = strategy.scopes.emplace_back();
  scope.kind = ScopeKind::expert;
  scope.device_count = experts;
  scope.add_match(pattern);
}

constexpr std::string_view shard_levels[] = {"auto", "v0", "v1", "v2"};

SearchShards searched_shards(std::string_view level) {
  const auto found = std::ranges::find(shard_levels, level);
  return found == std::end(shard_levels) ? SearchShards::nothing
                                         : static_cast<SearchShards>(found - std::begin(shard_levels));
}

// What a key allows. Other values than these two are in no candidate.
std::vector<SearchOffload> searched_offload(const Strategy& strategy) {
  if (strategy.text("offload.level") != "v0") return {SearchOffload::nothing};
  const std::vector<std::string> values = comma_separated(strategy.text("offload.values"));
  if (values.empty()) return {SearchOffload::states, SearchOffload::weights};
  const bool weights = std::ranges::find(values, "weights") != values.end();
  return {weights ? SearchOffload::weights : SearchOffload::states};
}

// Gradients of one micro-batch go too (SearchOffload), but not of one whose update is its own.
std::string offloaded_values(const Strategy& strategy, const SearchCandidate& candidate) {
  if (candidate.offload == SearchOffload::states) return "states";
  const bool gradients = candidate.micro_batches == 1 && strategy.text("batch.semantics") == "global";
  return gradients ? "states, weights, gradients" : "states, weights";
}

}  // namespace

Status check_searchable(const Strategy& strategy) {
  if (strategy.scopes.empty() && !strategy.has_default) return {};
  return unsupported(searches, " finds stages and splits of the full model in this version, and the strategy has ",
                     quoted(std::string_view(strategy.has_default ? "default" : "scopes")),
                     ", which says that already; leave out the one or the other");
}

std::vector<int64_t> splits_to_try(const Strategy& strategy, int64_t ranks) {
  const std::string& level = strategy.text("reproducible.level");
  std::vector<int64_t> splits;
  if (level != "run" && level != "layout") return splits;
  for (int64_t split = 2; split <= std::min(ranks, most_split); split *= 2) {
    if (ranks % split == 0) splits.push_back(split);
  }
  return splits;
}

Strategy of_one_copy(Strategy strategy, int64_t split, bool sequence) {
  for (const char* key : searched_keys) strategy.config.erase(key);
  for (const char* key : with_searched_keys) strategy.config.erase(key);
  if (split > 1) split_all(strategy, split, sequence);
  return strategy;
}

std::string pattern_of_experts(const Graph& graph) {
  const auto is_named = [](const std::string& name) { return name.find(experts_word) != std::string::npos; };
  for (const Value v : graph.leaves(ValueKind::parameter)) {
    if (is_named(graph.value(v).name)) return cat("param:*", experts_word, "*");
  }
  const bool any = std::ranges::any_of(graph.node_ids(), [&](NodeId n) { return is_named(graph.node(n).name); });
  return any ? cat("*", experts_word, "*") : std::string();
}

int64_t number_of_experts(const Graph& graph) {
  std::set<std::string> numbers;
  int64_t joined = 0;
  const auto look = [&](const std::string& name) {
    const size_t at = name.find(experts_word);
    if (at == std::string::npos) return false;
    const size_t first = std::min(at + experts_word.size() + 1, name.size());
    const size_t behind = std::min(name.find_first_not_of("0123456789", first), name.size());
    if (behind > first) numbers.insert(name.substr(first, behind - first));
    return true;
  };
  const auto count = [&](Value v) {
    const Shape& shape = graph.type(v).shape;
    if (joined == 0 && shape.size() > 2) joined = shape.front();
  };
  for (const Value v : graph.leaves(ValueKind::parameter)) {
    if (look(graph.value(v).name)) count(v);
  }
  for (const NodeId n : graph.node_ids()) {
    if (graph.node(n).phase != Phase::forward || !look(graph.node(n).name)) continue;
    for (const Value v : graph.node(n).inputs) {
      if (v && graph.value(v).kind == ValueKind::parameter) count(v);
    }
  }
  return numbers.size() > 1 ? std::ssize(numbers) : joined;
}

std::vector<int64_t> experts_to_try(const SearchProblem& problem, int64_t experts) {
  std::vector<int64_t> found;
  for (int64_t ranks = 2; ranks <= std::min(problem.ranks, most_experts); ++ranks) {
    const bool divides = experts > 0 ? experts % ranks == 0 : std::has_single_bit(static_cast<uint64_t>(ranks));
    if (problem.ranks % ranks == 0 && divides && cuts_batch(problem, ranks)) found.push_back(ranks);
  }
  const int64_t host = problem.cost.machine().links.front().ranks;
  const auto of_a_host = static_cast<size_t>(std::ranges::count_if(found, [&](int64_t n) { return n <= host; }));
  const size_t near = host > 0 ? of_a_host : found.size(), far = found.size() - near;
  const size_t far_kept = std::min(far, most_expert_forms - std::min(near, most_expert_forms / 2));
  const size_t near_kept = std::min(near, most_expert_forms - far_kept);
  const auto behind_near = found.begin() + static_cast<std::ptrdiff_t>(near);
  std::vector<int64_t> kept(behind_near - static_cast<std::ptrdiff_t>(near_kept), behind_near);
  kept.insert(kept.end(), found.end() - static_cast<std::ptrdiff_t>(far_kept), found.end());
  return kept;
}

Strategy of_shared_experts(Strategy strategy, const std::string& pattern, int64_t experts) {
  strategy = of_one_copy(std::move(strategy), 1);
  share_experts(strategy, pattern, experts);
  // What is summed over copies and when is not the model's.
  set_open(strategy, "zero.level", "off");
  return strategy;
}

SearchSpace space_of(const Strategy& strategy, bool moves) {
  const Attributes& config = strategy.config;
  SearchSpace space;
  if (config.has("pipeline.strategy")) {
    if (const PipelineRow* row = find_pipeline(strategy.text("pipeline.strategy"))) space.rows = {row};
  }
  if (config.has("pipeline.num_stages")) space.stages = {static_cast<int>(strategy.integer("pipeline.num_stages"))};
  if (config.has("pipeline.virtual_stages"))
    space.chunks = {static_cast<int>(strategy.integer("pipeline.virtual_stages"))};
  // Independent micro-batches are part of the mathematics.
  if (config.has("pipeline.num_micro_batch") || strategy.text("batch.semantics") != "global")
    space.micro_batches = {strategy.integer("pipeline.num_micro_batch")};
  const bool ranks_first = config.has("batch.order") && strategy.text("batch.order") == "ranks";
  if (ranks_first) space.shards = {SearchShards::nothing, SearchShards::states};
  if (config.has("zero.level")) space.shards = {searched_shards(strategy.text("zero.level"))};
  if (!moves) space.offload = {SearchOffload::nothing};
  if (config.has("offload.level")) space.offload = searched_offload(strategy);
  return space;
}

bool may_go_in_levels(const Strategy& strategy) {
  return !strategy.config.has(levels_key) || strategy.flag(levels_key);
}

Strategy with_candidate(Strategy strategy, const SearchProblem& problem, const SearchCandidate& candidate,
                        const std::string& experts) {
  const SearchForm& form = problem.forms[candidate.form];
  if (form.ranks > 1) split_all(strategy, form.ranks, form.sequence);
  if (form.experts > 1) share_experts(strategy, experts, form.experts);
  set_open(strategy, "pipeline.num_stages", cat(candidate.stages));
  set_open(strategy, "pipeline.num_micro_batch", cat(candidate.micro_batches));
  if (candidate.stages > 1) {
    set_open(strategy, "pipeline.strategy", candidate.row->words.back());
    if (candidate.row->chunks == 0) set_open(strategy, "pipeline.virtual_stages", cat(candidate.chunks));
  }
  set_open(strategy, "zero.level", std::string(shard_levels[static_cast<size_t>(candidate.shards)]));
  if (problem.two_levels && SearchShape(problem, candidate).sums_in_levels()) set_open(strategy, levels_key, "true");
  const bool moves = candidate.offload != SearchOffload::nothing;
  if (moves) set_open(strategy, "offload.values", offloaded_values(strategy, candidate));
  set_open(strategy, "offload.level", moves ? "v0" : "");
  // Which results are computed again follows from the bytes that there are.
  const bool again = std::ranges::any_of(candidate.again, [](int way) { return way > 0; });
  if (again && problem.bytes > 0 && !strategy.config.has("gradient_checkpoint.type"))
    set_open(strategy, "memory.budget", cat(static_cast<int64_t>(problem.bytes)));
  return strategy;
}

void take_searched(Strategy& strategy, const Strategy& chosen) {
  if (!strategy.flag(searches)) return;
  std::vector<std::string_view> keys(std::begin(searched_keys), std::end(searched_keys));
  keys.insert(keys.end(), {sequence_key, levels_key});
  // In their order there, which is part of what strategies are compared by.
  for (const auto& [key, value] : chosen.config.entries()) {
    if (std::ranges::find(keys, key) != keys.end() && !strategy.config.has(key)) strategy.config.set(key, value);
  }
  if (strategy.scopes.empty() && !strategy.has_default && chosen.has_default) {
    strategy.has_default = true;
    strategy.default_scope = chosen.default_scope;
    strategy.scopes = chosen.scopes;
  }
}

}  // namespace epl
