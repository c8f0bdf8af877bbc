// Low-rank adapters on the command line.
#include "tools/lora.h"

namespace epl::tools {

void add_adapter_options(CLI::App& app, JobOptions& o) {
  app.add_option("--lora", o.lora, "train low-rank adapters beside these layers (by glob over modules, or the end of their names), all else frozen but for --train-only; may be repeated")->allow_extra_args(false);
  app.add_option("--rank", o.lora_rank, "of the adapters")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--lora-alpha", o.lora_alpha, "they count alpha / rank times")->capture_default_str();
  app.add_option("--lora-dropout", o.lora_dropout, "of what the adapters are applied to")->check(CLI::Range(0.0, 0.999));
}

void match_adapters(JobOptions& o, const std::vector<std::string>& trained) {
  o.train_only.clear();
  bool adapted = false;
  for (const std::string& name : trained) {
    const bool adapter = name.starts_with("base_model.model.") && (name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight"));
    adapted = adapted || adapter;
    if (!adapter) o.train_only.push_back(name);
  }
  if (adapted && o.lora.empty()) throw UsageError("the checkpoint holds low-rank adapters; give --lora, --rank and --lora-alpha as they were in training");
  if (!adapted && !o.lora.empty()) throw UsageError("--lora: the checkpoint holds no low-rank adapters");
}

void add_adapters(epl_trainer* trainer, const JobOptions& o) {
  epl_adapter_options options = EPL_ADAPTER_OPTIONS_INIT;
  options.rank = o.lora_rank;
  options.alpha = o.lora_alpha;
  options.dropout = o.lora_dropout;
  for (const std::string& pattern : o.lora) check(epl_trainer_add_adapter(trainer, pattern.data(), pattern.size(), &options));
}

}  // namespace epl::tools
