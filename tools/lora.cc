// Low-rank adapters on the command line.
#include "tools/lora.h"

#include <charconv>

#include "tools/usage.h"
#include "tools/values.h"

namespace epl::tools {
namespace {

// Takes " KEY=NUMBER" off the end of `text`; false where it does not end like this.
template <class T> bool take_number(std::string& text, const std::string& key, T& number) {
  const size_t at = text.rfind(" " + key + "=");
  if (at == std::string::npos) return false;
  const char *begin = text.data() + at + key.size() + 2, *end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(begin, end, number);
  if (failed != std::errc() || stop != end) return false;
  text.resize(at);
  return true;
}

// "query rank=8 alpha=16.0 dropout=0.0; value rank=4 ...", as a checkpoint has it (core/runtime/facts.cc).
std::vector<Adapter> parse_adapters(std::string text) {
  std::vector<Adapter> out;
  while (!text.empty()) {
    Adapter one;
    if (!take_number(text, "dropout", one.dropout) || !take_number(text, "alpha", one.alpha) ||
        !take_number(text, "rank", one.rank))
      return {};
    const size_t before = text.rfind("; ");
    one.pattern = before == std::string::npos ? text : text.substr(before + 2);
    text.resize(before == std::string::npos ? 0 : before);
    out.insert(out.begin(), std::move(one));
  }
  return out;
}

}  // namespace

void add_adapter_options(CLI::App& app, JobOptions& o) {
  app.option_defaults()->group(groups::trained);
  app.add_option("--lora", o.lora,
                 "train low-rank adapters beside these layers (modules, or the end of their names), all else frozen "
                 "but for --train-only; may be repeated")
      ->type_name("PATTERN")
      ->allow_extra_args(false);
  app.add_option("--rank", o.lora_rank, "of the adapters")->check(integer_value(1))->capture_default_str();
  app.add_option("--lora-alpha", o.lora_alpha, "they count alpha / rank times")->check(above(0))->capture_default_str();
  app.add_option("--lora-dropout", o.lora_dropout, "of what the adapters are applied to")
      ->check(between(0, 0.999))
      ->capture_default_str();
}

void match_adapters(JobOptions& o, const Json& checkpoint, const std::vector<std::string>& trained) {
  const std::string said = checkpoint.at("facts").value("adapters", "");
  o.adapters = parse_adapters(said);
  if (o.adapters.empty() && !said.empty())
    throw UsageError("the checkpoint holds low-rank adapters of layers that only a program can name (" + said + ")");
  o.train_only.clear();
  for (const std::string& name : trained) {
    const bool adapter =
        name.starts_with("base_model.model.") && (name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight"));
    if (!adapter || o.adapters.empty()) o.train_only.push_back(name);
  }
}

void add_adapters(epl_trainer* trainer, const JobOptions& o) {
  std::vector<Adapter> adapters = o.adapters;
  if (adapters.empty()) {
    for (const std::string& pattern : o.lora) adapters.push_back({pattern, o.lora_rank, o.lora_alpha, o.lora_dropout});
  }
  for (const Adapter& one : adapters) {
    epl_adapter_options options = EPL_ADAPTER_OPTIONS_INIT;
    options.rank = one.rank;
    options.alpha = one.alpha;
    options.dropout = one.dropout;
    check(epl_trainer_add_adapter(trainer, one.pattern.data(), one.pattern.size(), &options));
  }
}

}  // namespace epl::tools
