#include "core/runtime/facts.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <vector>

#include "core/base/hash.h"
#include "core/base/shown.h"
#include "core/compile/compiled_plan.h"
#include "core/data/dataset.h"

namespace epl {
namespace {

constexpr int64_t samples_looked_at = 64;

std::string hex(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

void add_options(Facts& facts, const std::string& prefix, const std::vector<Option>& declared,
                 const Attributes& given) {
  for (const Option& spec : declared) {
    const Attribute* value = given.find(spec.name);
    facts[prefix + spec.name] = attribute_text(value ? *value : spec.value);
  }
}

std::string groups_text(const std::vector<ParameterGroup>& groups) {
  std::string out;
  for (const ParameterGroup& group : groups) {
    out += cat(out.empty() ? "" : "; ", join(group.patterns, " "), group.frozen ? " frozen" : "");
    for (const Attributes::Entry& entry : group.options.entries())
      out += cat(" ", entry.name, "=", attribute_text(entry.value));
  }
  return out;
}

std::string adapters_text(const std::vector<AdapterSpec>& specs) {
  std::string out;
  for (const AdapterSpec& spec : specs)
    out += cat(out.empty() ? "" : "; ", spec.pattern, " rank=", spec.rank, " alpha=", spec.alpha,
               " dropout=", spec.dropout);
  return out;
}

// Which parameters those are follows from several options; names alone would be long.
std::string trained_text(std::vector<std::string> names) {
  std::ranges::sort(names);
  Hash64 hash;
  for (const std::string& name : names) hash.add(name.c_str(), name.size() + 1);
  return cat(names.size(), " parameters (", hex(hash.value()), ")");
}

// Of samples spread over the data; "" when one cannot be read, because a save should not fail for that.
std::string hash_of_samples(const Reader& reader) {
  if (!reader.repeatable()) return "";
  Hash64 hash;
  const int64_t count = std::min(reader.samples(), samples_looked_at);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = count < 2 ? 0 : i * ((reader.samples() - 1) / (count - 1));
    for (size_t f = 0; f < reader.fields().size(); ++f) {
      Tensor value(reader.fields()[f].second);
      if (!reader.read(index, static_cast<int>(f), value.data()).ok()) return "";
      hash.add(value.data(), static_cast<size_t>(value.bytes()));
    }
  }
  return hex(hash.value());
}

// Where the inputs of a step count samples, however that came about.
std::string batch_dims_text(const CompiledPlan& plan) {
  const Entry* entry = plan.entry(EntryKind::train);
  std::string out;
  for (size_t i = 0; entry != nullptr && i < entry->samples.inputs.size(); ++i) {
    out += cat(out.empty() ? "" : ", ", entry->inputs[i].name, "=", entry->samples.inputs[i]);
  }
  return out;
}

// Inputs that are constants: one number as it is, several as a hash of them.
std::string values_text(const std::map<std::string, Tensor>& values) {
  std::string out;
  for (const auto& [name, value] : values) {
    Hash64 hash;
    add_to_hash(hash, value);
    out +=
        cat(out.empty() ? "" : ", ", name, "=", value.elements() == 1 ? number_text(value.get(0)) : hex(hash.value()));
  }
  return out;
}

// What a difference in a key means; the first row whose key fits, completely or as a prefix that ends in a dot.
struct FactMeaning {
  std::string_view key, topic;
  bool breaks;
};
constexpr FactMeaning meanings[] = {
    {"model.", "model", true},    {"data.batch", "batch", true}, {"data.order", "order", true},
    {"data.seed", "order", true}, {"seed", "order", true},       {"data.", "data", true},
    {"loss", "loss", true},       {"loss.", "loss", true},       {"optimizer", "optimizer", true},
    {"adapters", "model", true},  {"trained", "model", true}};

}  // namespace

Facts describe_run(const CompiledPlan& plan) {
  const PlanOptions& options = plan.options();
  Facts facts;
  if (const uint64_t fingerprint = options.model->fingerprint(); fingerprint != 0)
    facts["model.graph"] = hex(fingerprint);
  for (const auto& [name, value] : plan.constants()) facts[cat("model.", name)] = value;
  if (!options.training) return facts;
  const TrainOptions& train = options.train;
  facts["optimizer"] = train.optimizer;
  for (const OptimizerRow& row : optimizer_table().rows) {
    if (row.name == train.optimizer) add_options(facts, "optimizer.", row.options, train.optimizer_options);
  }
  facts["loss"] = train.loss.name;
  facts["loss.output"] = train.loss.output;
  facts["loss.peel"] = cat(train.loss.peel);
  if (train.loss.target_input != target_name) facts["loss.target"] = train.loss.target_input;
  for (const LossRow& row : loss_table().rows) {
    if (row.name == train.loss.name) add_options(facts, "loss.", row.options, train.loss.options);
  }
  facts["schedule"] = train.schedule.name;
  facts["schedule.warmup_steps"] = cat(train.schedule.warmup_steps);
  for (const ScheduleRow& row : schedule_table().rows) {
    if (row.name == train.schedule.name) add_options(facts, "schedule.", row.options, train.schedule.options);
  }
  facts["clip_norm"] = cat(train.clip_norm);
  facts["data.batch_dims"] = batch_dims_text(plan);
  facts["data.values"] = values_text(options.binding.values);
  facts["groups"] = groups_text(train.groups);
  facts["train_only"] = join(train.train_only, " ");
  facts["adapters"] = adapters_text(options.adapters.specs);
  facts["trained"] = trained_text(plan.trained());
  return facts;
}

Facts describe_rate(const RateScale& scale) {
  if (scale.scale == 1 && !scale.measured && scale.bad == 0) return {};  // as it began
  return {{"rate.scale", number_text(scale.scale)},
          {"rate.measured", cat(scale.measured)},
          {"rate.best", number_text(scale.best)},
          {"rate.bad", cat(scale.bad)},
          {"rate.cooldown", cat(scale.cooldown)}};
}

RateScale parse_rate(const Facts& facts) {
  RateScale out;
  const auto number = [&](const char* key, auto& into) {
    const auto it = facts.find(key);
    if (it != facts.end()) std::from_chars(it->second.data(), it->second.data() + it->second.size(), into);
  };
  number("rate.scale", out.scale);
  number("rate.best", out.best);
  number("rate.bad", out.bad);
  number("rate.cooldown", out.cooldown);
  const auto measured = facts.find("rate.measured");
  out.measured = measured != facts.end() && measured->second == "true";
  return out;
}

namespace {

constexpr std::string_view slices_fact = "data.slices", unbalanced_slices = ", unbalanced",
                           dropped_files = ", last files dropped";

}  // namespace

Facts describe_data(const Dataset& dataset) {
  const Reader& reader = dataset.reader();
  const DatasetOptions& options = dataset.options();
  Facts facts;
  std::string fields;
  for (const auto& [name, type] : reader.fields()) fields += cat(fields.empty() ? "" : "; ", name, " ", type.text());
  facts["data.fields"] = fields;
  facts["data.samples"] = dataset.endless() ? "unknown" : cat(reader.samples());
  if (std::string hash = hash_of_samples(reader); !hash.empty()) facts["data.hash"] = std::move(hash);
  facts["data.batch"] = cat(options.batch);
  facts["data.order"] = options.shuffled ? "shuffled" : "sequential";
  if (options.shuffled) facts["data.seed"] = cat(options.seed);
  if (dataset.slices() > 1) {
    const SliceOptions& slices = dataset.slice_options();
    facts[std::string(slices_fact)] = cat(dataset.slices(), slices.unbalanced        ? unbalanced_slices
                                                            : slices.drop_last_files ? dropped_files
                                                                                     : "");
  }
  return facts;
}

Status keep_slices(Dataset& dataset, const Facts& facts) {
  const auto found = facts.find(std::string(slices_fact));
  if (found == facts.end()) return dataset.slice(1, {}, true);
  const std::string& text = found->second;
  int64_t count = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failed != std::errc() || count < 1)
    return invalid(slices_fact, " is ", shown(text, 200), "; it begins with a number");
  const std::string_view how(end, text.data() + text.size());
  return dataset.slice(count, {.unbalanced = how == unbalanced_slices, .drop_last_files = how == dropped_files}, true);
}

std::vector<FactDifference> compare_facts(const Facts& saved, const Facts& now) {
  std::vector<FactDifference> out;
  for (const auto& [key, before] : saved) {
    auto it = now.find(key);
    if (it == now.end() || it->second == before) continue;
    if (key == slices_fact) continue;  // a run that goes on keeps its own
    FactDifference one{key, "options", before, it->second, false};
    for (const FactMeaning& meaning : meanings) {
      if (meaning.key.ends_with('.') ? !key.starts_with(meaning.key) : key != meaning.key) continue;
      one.topic = meaning.topic;
      one.breaks = meaning.breaks;
      break;
    }
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace epl
