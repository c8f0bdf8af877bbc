#include "core/strategy/strategy.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/strategy/built.h"
#include "core/strategy/pipeline.h"

namespace epl {

namespace {

constexpr std::string_view source_prefix = "node:";
constexpr std::string_view scope_kinds[] = {"replicate", "split", "expert"};

ConfigKey key(bool is_built, std::string name, Attribute value, std::string doc, std::vector<std::string> words) {
  return {{.name = std::move(name), .value = std::move(value), .doc = std::move(doc), .words = std::move(words)},
          is_built};
}
ConfigKey built(std::string name, Attribute value, std::string doc, std::vector<std::string> words = {}) {
  return key(true, std::move(name), std::move(value), std::move(doc), std::move(words));
}
ConfigKey later(std::string name, Attribute value, std::string doc, std::vector<std::string> words = {}) {
  return key(false, std::move(name), std::move(value), std::move(doc), std::move(words));
}
// Any other value is an error with this reason, which no later version will take back.
ConfigKey settled(std::string name, Attribute value, std::string doc, std::string reason) {
  ConfigKey made = later(std::move(name), std::move(value), std::move(doc));
  made.settled = std::move(reason);
  return made;
}

// `built`, `later` or `settled` is the truth about this version. The names are those of the original EPL (Whale).
std::vector<ConfigKey> keys_of_the_original() {
  return {
      built("auto.auto_parallel", false,
            "stages, copies, splits, schedule, micro-batches, shards and recomputation are found where they are left "
            "open, see above"),
      built("io.slicing", false, "shard the input files over the replicas, each of which then reads its own"),
      built("io.unbalanced_io_slicing", false, "with io.slicing: some replicas may have a file more than others"),
      built("io.drop_last_files", false, "with io.slicing: leave out the last files, which do not divide"),
      settled("communication.sparse_as_dense", true, "reduce sparse gradients as dense ones",
              "every shape is known, so the gradient of a table is dense, and its sum has one order in all layouts"),
      built("communication.max_splits", int64_t{5}, "into how many buckets gradients in shards are put (zero.level)"),
      settled("communication.num_communicators", int64_t{1}, "communicators of a group of ranks",
              "each group has one: its calls come in one order on all ranks, and those that may go together are one "
              "call; another one between the same ranks would share its links"),
      built("communication.fp16", false, "gradients are summed in 16 bits over ranks, see above"),
      built("communication.fp16_scale", int64_t{128},
            "with f16: what gradients are multiplied with before they are rounded; their sum is divided by it"),
      settled("communication.clip_after_allreduce", true, "clip after the reduction",
              "the norm is that of the gradient of the full batch; that of a part would depend on how ranks share it"),
      built("communication.gradients_reduce_method", "mean",
            "how gradients of independent micro-batches combine; sum: their mean times their number, see above",
            {"mean", "sum"}),
      built("communication.hierarchical", false,
            "all-reduces go inside hosts first where that is faster by the links of the machine"),
      later("communication.compression", "none", "compress gradients", {"none"}),
      built("pipeline.num_stages", int64_t{1},
            "virtual devices of a pipeline whose stages are found by their cost; 1: sibling scopes are the stages"),
      built("pipeline.num_micro_batch", int64_t{1}, "micro-batches of a step"),
      built("pipeline.strategy", "PreferBackward", "pipeline schedule, see above",
            {"PreferForward", "PreferBackward", "PreferBackwardOptimizer", "GPipe", "1F1B", "interleaved", "ZB-H1",
             "ZB-V", "DualPipe-V"}),
      built("pipeline.virtual_stages", int64_t{1}, "stages of each rank under the schedule interleaved, 2 or more"),
      built(
          "gradient_checkpoint.type", "",
          "what the backward pass computes again instead of keeping it; collection: what lies between the values that "
          "gradient_checkpoint.tensors names, or between TaskGraphs; auto: what takes least memory, see above",
          {"", "collection", "auto", "budget"}),
      built(
          "gradient_checkpoint.tensors", "",
          "with collection: the values that are kept, by globs over names of values or nodes with commas between them"),
      built("gradient_checkpoint.end_taskgraph", int64_t{-1},
            "number of the last TaskGraph of which anything is computed again, from 0; -1: all"),
      built("gradient_checkpoint.check_gradients", false,
            "compare the gradients of the first step with those of a plan that computes nothing again"),
      built("zero.level", "auto",
            "what copies of a parameter share out; v0: its update and the optimizer's state; v1: gradients too; v2: "
            "weights too; auto: as v0 for those parameters where that saves time; see above",
            {"auto", "off", "v0", "v1", "v2"}),
      built("offload.level", "",
            "v0: values lie in another memory of the device, on the CPU in files, while nobody uses them; see above",
            {"", "v0"}),
      built("amp.level", "",
            "mixed precision; O1: operands of products have 16 bits (amp.type), all sums and weights 32, see above",
            {"", "O1"}),
      built("amp.loss_scale", "dynamic",
            "what gradients of float16 are multiplied with on their way; a number, or dynamic: halved where they "
            "overflow, doubled after 2,000 steps where they do not"),
      built("amp.debug_log", false, "log each step that overflows, with the node where it begins"),
      settled("cluster.device_place_prefer_intra_node", true, "place a copy inside one host",
              "ranks of a copy have neighbouring numbers, and who starts the processes says where each rank is"),
      settled("cluster.run_visible_devices", "", "devices to use",
              "a strategy is the same in all processes; who starts a process says which devices it sees"),
      built("cluster.colocate_split_and_replicate", false, "sibling scopes share devices"),
      settled("optimizer.num_apply_group", int64_t{1}, "parameters updated group by group",
              "each parameter is updated by itself already, and what that needs is free before the next one"),
  };
}

std::vector<ConfigKey> keys_of_our_own() {
  return {
      built("communication.fp16_type", "f16", "with communication.fp16: of which type the 16 bits are",
            {"f16", "bf16"}),
      built(
          "offload.values", "",
          "which values, with commas between them: states, weights, gradients, activations; empty: the first two, and "
          "of the others what moves while kernels compute"),
      built("offload.folder", ".", "where the files are; they have no names and are gone when the process ends"),
      built("amp.type", "bf16", "type of 16 bits in mixed precision", {"bf16", "f16"}),
      built("memory.budget", "",
            "bytes that a rank may have at its peak, as 1.6GB or 2GiB; what the strategy leaves open is chosen so that "
            "the plan fits, see above"),
      built("memory.allow_state_type", "f32",
            "with memory.budget: bf16 allows it to store the optimizer's states so (state_type), which changes numbers",
            {"f32", "bf16"}),
      built(
          "reproducible.level", "data",
          "which layouts give the same bits; run: the same one; data: all but splits; layout: all; exact: as data, and "
          "on every kind of device the same",
          {"run", "data", "layout", "exact"}),
      built("reproducible.units", int64_t{0},
            "units of the batch, whose sums are joined as a binary tree; 0 for the largest power of two up to 8 that "
            "divides it"),
      built(
          "split.sequence", false,
          "cut what lies between the nodes of a split too: sums scatter their shards, which are gathered when needed"),
      built("split.spatial", "auto",
            "cut the rows of images over a split, whose ranks then read the borders of their neighbours' shards; auto: "
            "where this moves less than cutting channels; on: wherever rows divide",
            {"auto", "on", "off"}),
      built("outputs.global_concat", "",
            "outputs, by globs with commas between them: the samples of the full batch, one after another"),
      built("outputs.global_mean", "", "outputs: their mean over the samples of the full batch"),
      built("outputs.global_sum", "", "outputs: their sum over the samples of the full batch"),
      built("outputs.local_concat", "", "outputs: the samples of the ranks of one process, one after another"),
      built("outputs.local_mean", "", "outputs: their mean over the samples of the ranks of one process"),
      built("outputs.local_sum", "", "outputs: their sum over the samples of the ranks of one process"),
      built("batch.semantics", "global",
            "what batch statistics and gates look at: the full batch, or each micro-batch by itself, see above",
            {"global", "per_micro_batch"}),
      built("batch.order", "ranks",
            "what cuts the batch first: ranks, of which each has one run of samples, or micro-batches, of which all "
            "ranks share each, as zero.level = v1 and v2 need it; see above",
            {"ranks", "micro_batches"}),
  };
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> all = keys_of_the_original();
    for (ConfigKey& one : keys_of_our_own()) all.push_back(std::move(one));
    return all;
  }();
  return keys;
}

// All others keep the bits. Those of `io` say what is learnt from in which order.
bool keeps_bits(const ConfigKey& key) {
  static constexpr std::string_view numeric[] = {"auto.auto_parallel",
                                                 "io.slicing",
                                                 "io.unbalanced_io_slicing",
                                                 "io.drop_last_files",
                                                 "communication.compression",
                                                 "communication.fp16",
                                                 "communication.fp16_scale",
                                                 "communication.fp16_type",
                                                 "memory.allow_state_type",
                                                 "amp.level",
                                                 "amp.loss_scale",
                                                 "amp.type",
                                                 "reproducible.level",
                                                 "batch.semantics",
                                                 "reproducible.units",
                                                 "communication.gradients_reduce_method"};
  return std::ranges::find(numeric, key.name) == std::end(numeric);
}

namespace {

// Whether this version runs a word of a key that is built.
bool runs(std::string_view key, std::string_view word) {
  if (key == "pipeline.strategy") return find_pipeline(word) != nullptr;
  return true;
}

}  // namespace

std::vector<std::string> built_words(const ConfigKey& key) {
  std::vector<std::string> words = key.built ? key.words : std::vector<std::string>();
  std::erase_if(words, [&](const std::string& word) { return !runs(key.name, word); });
  return words;
}

namespace {

const ConfigKey* find_key(std::string_view name) {
  for (const ConfigKey& key : config_keys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

const Attribute& value_of(const Strategy& strategy, std::string_view key) {
  if (const Attribute* set = strategy.config.find(key)) return *set;
  const ConfigKey* known = find_key(key);
  EPL_CHECK(known != nullptr, "no strategy key ", key);
  return known->value;
}

}  // namespace

int64_t Strategy::integer(std::string_view key) const { return std::get<int64_t>(value_of(*this, key)); }
bool Strategy::flag(std::string_view key) const { return std::get<bool>(value_of(*this, key)); }
const std::string& Strategy::text(std::string_view key) const { return std::get<std::string>(value_of(*this, key)); }

Status set_config(Strategy& strategy, std::string_view name, std::string_view value) {
  static constexpr std::string_view what = "a strategy";
  const ConfigKey* known = find_key(name);
  if (!known) {
    std::vector<std::string> names;
    for (const ConfigKey& one : config_keys()) names.push_back(one.name);
    return unknown_option(name, names, what);
  }
  EPL_ASSIGN(Attribute read, parse_option(value, *known, what));
  strategy.config.set(name, std::move(read));
  return {};
}

void Scope::add_match(std::string_view pattern) {
  if (pattern.starts_with(source_prefix)) {
    sources.emplace(pattern.substr(source_prefix.size()));
  } else {
    match.emplace_back(pattern);
  }
}

bool Scope::matches_everything() const {
  return (match.empty() && sources.empty()) || std::ranges::find(match, "*") != match.end();
}

std::vector<std::string> Scope::patterns() const {
  std::vector<std::string> all = match;
  for (const std::string& source : sources) all.push_back(cat(source_prefix, source));
  return all;
}

std::string_view scope_kind_name(ScopeKind kind) { return scope_kinds[static_cast<size_t>(kind)]; }

std::optional<ScopeKind> scope_kind_named(std::string_view name) {
  const auto found = std::ranges::find(scope_kinds, name);
  if (found == std::end(scope_kinds)) return {};
  return static_cast<ScopeKind>(found - std::begin(scope_kinds));
}

Status check_built(const Strategy& strategy) {
  std::vector<std::string> missing;
  for (const Attributes::Entry& entry : strategy.config.entries()) {
    const ConfigKey* key = find_key(entry.name);
    EPL_CHECK(key != nullptr, entry.name);
    const auto* word = std::get_if<std::string>(&entry.value);
    const bool other = !key->built && !identical(entry.value, key->value);
    const std::string set = cat("\"", entry.name, "\" = ", attribute_text(entry.value));
    if (other && !key->settled.empty())
      return unsupported(set, ": it is ", attribute_text(key->value), " and nothing else: ", key->settled);
    if (other || (key->built && word && !runs(key->name, *word))) missing.push_back(set);
  }
  if (missing.empty()) return {};
  return unsupported("this version knows, but cannot run yet: ", join(missing, "; "));
}

namespace {

const ConfigKey& row_of(std::string_view name) {
  return *std::ranges::find(config_keys(), name, [](const ConfigKey& one) { return std::string_view(one.name); });
}

// A text that names something asks for it also where it is the default, as the type of mixed precision.
bool asks(const ConfigKey& key, const Attribute& value) {
  const auto* word = std::get_if<std::string>(&key.value);
  return !identical(value, key.value) || (word && !word->empty());
}

bool is_met(const KeyNeed& need, const Strategy& strategy) {
  const Attribute* set = strategy.config.find(need.other);
  const Attribute& value = set ? *set : row_of(need.other).value;
  if (need.words.empty()) return !identical(value, row_of(need.other).value);
  if (const bool* flag = std::get_if<bool>(&value)) return need.words.front() == (*flag ? "true" : "false");
  return std::ranges::find(need.words, std::string_view(std::get<std::string>(value))) != need.words.end();
}

std::string need_text(const KeyNeed& need) {
  std::vector<std::string> words(need.words.begin(), need.words.end());
  return words.empty() ? std::string(need.other) : cat(need.other, " = ", join(words, " or "));
}

}  // namespace

std::span<const KeyNeed> key_needs() {
  static const std::vector<KeyNeed> needs = {
      {"io.unbalanced_io_slicing", "io.slicing", {"true"}},
      {"io.drop_last_files", "io.slicing", {"true"}},
      {"communication.fp16_scale", "communication.fp16", {"true"}},
      {"communication.fp16_type", "communication.fp16", {"true"}},
      {"communication.max_splits", "zero.level", {"v1", "v2"}},
      {"communication.max_splits", "memory.budget", {}},
      {"communication.max_splits", "auto.auto_parallel", {"true"}},
      {"pipeline.virtual_stages", "pipeline.strategy", {"interleaved"}},
      {"gradient_checkpoint.tensors", "gradient_checkpoint.type", {"collection"}},
      {"gradient_checkpoint.end_taskgraph", "gradient_checkpoint.type", {}},
      {"gradient_checkpoint.end_taskgraph", "memory.budget", {}},
      {"gradient_checkpoint.check_gradients", "gradient_checkpoint.type", {}},
      {"gradient_checkpoint.check_gradients", "memory.budget", {}},
      {"offload.values", "offload.level", {"v0"}},
      {"offload.folder", "offload.level", {"v0"}},
      {"offload.folder", "memory.budget", {}},
      {"offload.folder", "auto.auto_parallel", {"true"}},
      {"memory.allow_state_type", "memory.budget", {}},
      {"amp.type", "amp.level", {"O1"}},
      {"amp.loss_scale", "amp.type", {"f16"}},
      {"amp.debug_log", "amp.type", {"f16"}},
  };
  return needs;
}

Status check_needs(const Strategy& strategy) {
  for (const Attributes::Entry& entry : strategy.config.entries()) {
    std::vector<std::string> missing;
    bool met = false;
    for (const KeyNeed& need : key_needs()) {
      if (need.key != entry.name) continue;
      met = met || is_met(need, strategy);
      missing.push_back(need_text(need));
    }
    if (missing.empty() || met || !asks(row_of(entry.name), entry.value)) continue;
    return invalid(entry.name, " = ", attribute_text(entry.value), " does nothing by itself; it needs ",
                   join(missing, ", or "));
  }
  return {};
}

}  // namespace epl
