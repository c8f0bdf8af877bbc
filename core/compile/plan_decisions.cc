#include "core/compile/plan_decisions.h"

#include <charconv>

#include "core/base/numerics.h"
#include "core/base/shown.h"
#include "core/compile/budget.h"
#include "core/compile/search_keys.h"
#include "core/strategy/plan_text.h"

namespace epl {
namespace {

std::string hash_of(const Model& model) {
  const uint64_t fingerprint = model.fingerprint();
  return fingerprint == 0 ? "" : decisions_hash(cat(fingerprint));
}

constexpr const char *allows = "memory.allow_state_type", *state_type = "state_type";

std::string states_of(const TrainOptions& train) {
  const Attribute* set = train.optimizer_options.find(state_type);
  return set ? std::get<std::string>(*set) : "f32";
}

}  // namespace

PlanFile decisions_of(const CompiledPlan& plan, std::string_view version) {
  PlanFile file;
  file.facts = {{"model", hash_of(*plan.options().model)},
                {"strategy", decisions_text(plan.options().strategy)},
                {"ranks", cat(plan.options().ranks)},
                {"version", std::string(version)},
                {"numerics", cat(numerics_version)}};
  // That a budget may have chosen.
  if (plan.options().strategy.config.has(allows)) file.facts[state_type] = states_of(plan.options().train);
  for (const Entry& entry : plan.entries()) {
    if (entry.kind == EntryKind::check) continue;  // it follows from train
    const std::string name = entry.name();
    file.facts[cat("graph of ", name)] = decisions_hash(*entry.plan.graph);
    file.entries.emplace_back(name, print_plan_with_reasons(entry.plan));
  }
  return file;
}

Status take_decisions(const PlanFile& file, std::string_view version, bool has_strategy, PlanOptions& options) {
  const auto fact = [&](const char* name) {
    const auto found = file.facts.find(name);
    return found == file.facts.end() ? std::string() : found->second;
  };
  if (fact("numerics") != cat(numerics_version))
    return made_for_another("version of the numerics", fact("numerics"), cat(numerics_version));
  if (fact("version") != version) return made_for_another("version of EPL", fact("version"), std::string(version));
  if (const std::string here = hash_of(*options.model); fact("model") != here)
    return made_for_another("model", fact("model"), here);
  EPL_ASSIGN(Strategy there, parse_strategy(fact("strategy")));
  if (has_strategy) {
    take_searched(options.strategy, there);
    take_chosen(options.strategy, there);
  } else {
    options.strategy = std::move(there);
  }
  Attributes& optimizer = options.train.optimizer_options;
  if (const std::string stored = fact(state_type); options.training && stored == "bf16" && !optimizer.has(state_type))
    optimizer.set(state_type, stored);
  const std::string ranks = fact("ranks");
  int64_t count = 0;
  std::from_chars(ranks.data(), ranks.data() + ranks.size(), count);
  if (count < 1) return error(Code::data_loss, "the plan file is for ", shown(ranks), " ranks");
  if (options.ranks != 0 && options.ranks != count)
    return made_for_another("number of ranks", ranks, cat(options.ranks));
  options.ranks = count;
  return {};
}

}  // namespace epl
