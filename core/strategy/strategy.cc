#include "core/strategy/strategy.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/suggestion.h"
#include "core/strategy/pipeline.h"

namespace epl {

// The names are those of the original EPL (Whale), then ours. `built` is the truth about this version.
const std::vector<ConfigKey>& config_keys() {
  using S = std::string;
  static const std::vector<ConfigKey> keys = {
      {"auto.auto_parallel", false, {}, false, "the planner decides everything that is left open"},
      {"io.slicing", false, {}, false, "cut the input files over the replicas"},
      {"io.unbalanced_io_slicing", false, {}, false, "allow replicas different numbers of files"},
      {"io.drop_last_files", false, {}, false, "drop files that do not divide"},
      {"communication.sparse_as_dense", false, {}, false, "reduce sparse gradients as dense ones"},
      {"communication.max_splits", int64_t{5}, {}, false, "most gradient buckets"},
      {"communication.num_communicators", int64_t{2}, {}, false, "communicators in the pool"},
      {"communication.fp16", false, {}, false, "reduce gradients in half precision"},
      {"communication.fp16_scale", int64_t{128}, {}, false, "scale of half-precision gradients"},
      {"communication.clip_after_allreduce", true, {}, false, "clip after the reduction"},
      {"communication.gradients_reduce_method", S("mean"), {"mean", "sum"}, false, "how gradients combine"},
      {"communication.hierarchical", false, {}, false, "reduce inside the host first"},
      {"communication.compression", S("none"), {"none"}, false, "compress gradients"},
      {"pipeline.num_stages", int64_t{1}, {}, false, "pipeline stages"},
      {"pipeline.num_micro_batch",
       int64_t{1},
       {},
       true,
       "micro-batches of a step, a power of two that divides the units"},
      {"pipeline.strategy",
       S("PreferBackward"),
       {"PreferForward", "PreferBackward", "PreferBackwardOptimizer", "GPipe", "1F1B", "interleaved", "ZB-H1", "ZB-V",
        "DualPipe-V"},
       true,
       "pipeline schedule; in this version PreferForward, PreferBackward, GPipe and 1F1B"},
      {"pipeline.virtual_stages", int64_t{1}, {}, false, "chunks of a stage"},
      {"gradient_checkpoint.type", S(""), {"", "collection", "auto", "budget"}, false, "what is recomputed"},
      {"gradient_checkpoint.end_taskgraph", int64_t{-1}, {}, false, "last TaskGraph that is recomputed"},
      {"gradient_checkpoint.check_gradients", false, {}, false, "compare with gradients that are not recomputed"},
      {"zero.level", S(""), {"", "v0", "v1", "v2"}, false, "what is sharded: optimizer state, gradients, weights"},
      {"offload.level", S(""), {"", "v0"}, false, "what lives in host memory"},
      {"amp.level", S(""), {"", "O1"}, false, "mixed precision"},
      {"amp.loss_scale", S("dynamic"), {}, false, "loss scale of float16"},
      {"amp.debug_log", false, {}, false, "log overflow"},
      {"cluster.device_place_prefer_intra_node", true, {}, false, "place a copy inside one host"},
      {"cluster.run_visible_devices", S(""), {}, false, "devices to use"},
      {"cluster.colocate_split_and_replicate", false, {}, false, "sibling scopes share devices"},
      {"optimizer.num_apply_group", int64_t{1}, {}, false, "parameters updated group by group"},
      {"memory.budget", S(""), {}, false, "bytes that a rank may use, as 2GiB"},
      {"reproducible.level", S("data"), {"run", "data", "layout"}, true, "which layouts give the same bits"},
      {"reproducible.units",
       int64_t{0},
       {},
       true,
       "units of the batch, 0 for the largest power of two up to 8 that divides it"},
      {"batch.semantics", S("global"), {"global", "per_micro_batch"}, false, "whether micro-batches stand alone"},
  };
  return keys;
}

namespace {

const ConfigKey* find_key(std::string_view name) {
  for (const ConfigKey& key : config_keys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

Status unknown_key(std::string_view name) {
  std::vector<std::string> known;
  for (const ConfigKey& key : config_keys()) known.push_back(key.name);
  return error(Code::not_found, "unknown strategy key ", quoted(name), did_you_mean(name, known));
}

}  // namespace

namespace {

const Attribute& value_of(const Strategy& strategy, std::string_view key) {
  if (const Attribute* set = strategy.config.find(key)) return *set;
  const ConfigKey* known = find_key(key);
  EPL_CHECK(known != nullptr, "no strategy key ", key);
  return known->value;
}

}  // namespace

int64_t Strategy::integer(std::string_view key) const { return std::get<int64_t>(value_of(*this, key)); }
const std::string& Strategy::text(std::string_view key) const { return std::get<std::string>(value_of(*this, key)); }

Status set_config(Strategy& strategy, std::string_view name, std::string_view value) {
  const ConfigKey* key = find_key(name);
  if (!key) return unknown_key(name);
  auto wrong = [&](std::string_view wanted) {
    return invalid("strategy key \"", name, "\" is ", wanted, ", got \"", value, "\"");
  };
  if (std::holds_alternative<bool>(key->value)) {
    if (value != "true" && value != "false") return wrong("true or false");
    strategy.config.set(name, value == "true");
  } else if (std::holds_alternative<int64_t>(key->value)) {
    int64_t number = 0;
    auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (failure != std::errc{} || end != value.data() + value.size()) return wrong("an integer");
    strategy.config.set(name, number);
  } else {
    if (!key->words.empty() && std::ranges::find(key->words, value) == key->words.end()) {
      return wrong(cat("one of ", join(key->words, ", ")));
    }
    strategy.config.set(name, std::string(value));
  }
  return {};
}

Status check_built(const Strategy& strategy, int64_t ranks) {
  std::vector<std::string> missing;
  for (const Attributes::Entry& entry : strategy.config.entries()) {
    const ConfigKey* key = find_key(entry.name);
    EPL_CHECK(key != nullptr, entry.name);
    if (!key->built && !identical(entry.value, key->value)) {
      missing.push_back(cat("\"", entry.name, "\" = ", attribute_text(entry.value)));
    }
  }
  if (strategy.text("reproducible.level") == "layout") missing.push_back("\"reproducible.level\" = \"layout\"");
  const std::string& pipeline = strategy.text("pipeline.strategy");
  if (!find_pipeline(pipeline)) missing.push_back(cat("\"pipeline.strategy\" = ", quoted(pipeline)));
  auto refuse = [&](const Scope& s, std::string_view where) {
    static constexpr std::string_view kinds[] = {"replicate", "split", "expert"};
    missing.push_back(cat("scope ", s.name.empty() ? where : std::string_view(s.name), ": ",
                          kinds[static_cast<int>(s.kind)], "(", s.device_count, ")",
                          s.scopes.empty() ? "" : " with inner scopes"));
  };
  // Sibling scopes are stages, each with as many ranks; ranks that are left over are data parallelism.
  const auto plain = [](const Scope& s) { return s.kind == ScopeKind::replicate && s.scopes.empty(); };
  for (const Scope& s : strategy.scopes) {
    if (!plain(s) || strategy.scopes.size() < 2)
      refuse(s, "of scopes");
    else if (s.device_count != strategy.scopes.front().device_count)
      missing.push_back(
          cat("stages of different sizes: ", strategy.scopes.front().device_count, " and ", s.device_count, " ranks"));
  }
  const int64_t copy =
      strategy.scopes.empty() ? 1 : strategy.scopes.front().device_count * static_cast<int64_t>(strategy.scopes.size());
  if (missing.empty() && !strategy.scopes.empty() && (copy < 1 || ranks % copy != 0)) {
    missing.push_back(
        cat(strategy.scopes.size(), " stages of ", strategy.scopes.front().device_count, " ranks on ", ranks));
  }
  if (strategy.has_default) {
    const Scope& s = strategy.default_scope;
    if (!plain(s)) refuse(s, "default");
    // Any count that divides the ranks means the same.
    else if (s.device_count < 1 || ranks % s.device_count != 0)
      missing.push_back(cat("replicate over ", s.device_count, " of ", ranks, " ranks"));
  }
  if (missing.empty()) return {};
  return unsupported("this version knows, but cannot run yet: ", join(missing, "; "));
}

}  // namespace epl
