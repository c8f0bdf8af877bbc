#include "tools/report_data.h"

#include "tools/progress.h"

namespace epl::tools {

void ReportData::notice(const Json& event, const std::string&) {
  if (event.is_object() && event.contains("unigram")) levels_ = {{"unigram", event.at("unigram")}, {"bigram", event.at("bigram")}};
}

Report ReportData::report(const Json& memory, const std::vector<std::pair<std::string, std::string>>& facts) const {
  Report page;
  page.title = "Training " + job_.model;
  page.facts = {{"parameters", with_thousands(job_.parameters)}, {"steps", with_thousands(end_.step)}};
  page.facts.insert(page.facts.end(), facts.begin(), facts.end());
  page.facts.emplace_back("time", clock_text(end_.seconds));
  page.facts.emplace_back("memory planned", readable_bytes(job_.planned_bytes));
  if (!steps_.empty()) page.facts.emplace_back("memory used", readable_bytes(steps_.back().used_bytes));
  page.loss_unit = job_.unit == "tokens" ? "nats per byte" : "loss";
  Curve training{"training", {}}, held_out{"held out", {}};
  for (const StepDone& one : steps_) training.points.emplace_back(static_cast<double>(one.step), one.loss);
  for (const Evaluated& one : evaluations_) {
    if (!one.metrics.empty()) held_out.points.emplace_back(static_cast<double>(one.step), one.metrics.front().second);
  }
  page.curves.push_back(training);
  if (!held_out.points.empty()) {
    page.facts.emplace_back("held-out loss", fixed(held_out.points.back().second, 4));
    page.curves.push_back(held_out);
  }
  page.levels = levels_;
  if (levels_.size() == 2) page.facts.emplace_back("unigram, bigram", fixed(levels_[0].value, 4) + ", " + fixed(levels_[1].value, 4));
  page.arena_bytes = memory.at("arena_bytes");
  page.instruction_count = memory.at("instructions");
  for (const Json& r : memory.at("ranges")) page.memory.push_back({r.at("name"), r.at("kind"), r.at("offset"), r.at("bytes"), r.at("first"), r.at("last")});
  page.sample = end_.sample;
  return page;
}

}  // namespace epl::tools
