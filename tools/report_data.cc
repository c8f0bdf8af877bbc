#include "tools/report_data.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <functional>

#include "tools/commands.h"
#include "tools/measure.h"

namespace epl::tools {
namespace {

// A curve is about a pixel a point, an arena a few rectangles a pixel: more could not be seen.
constexpr size_t kMaxPoints = 2000, kMaxRanges = 3000;

std::string short_decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

Json one_series(const std::string& name, const std::string& group, const Points& points, bool smooth, bool markers) {
  Json list = Json::array();
  for (const auto& [step, value] : thinned(points, kMaxPoints)) list.push_back({step, value});
  return {{"name", name}, {"group", group}, {"points", list}, {"smooth", smooth}, {"markers", markers}};
}

// The plan's memory as the page draws it: what adds up to the peak, and the largest ranges of the arena.
Json memory_of(const Json& plan, const JobStart& job, int64_t used_bytes) {
  Json parts = Json::array();
  for (const Json& item : plan.at("items")) {
    if (!item.at("what").get<std::string>().starts_with(" ")) parts.push_back(item);
  }
  std::vector<Json> ranges(plan.at("ranges").begin(), plan.at("ranges").end());
  const size_t kept = std::min(ranges.size(), kMaxRanges);
  std::stable_sort(ranges.begin(), ranges.end(), [](const Json& a, const Json& b) {
    return a.at("bytes").get<int64_t>() > b.at("bytes").get<int64_t>();
  });
  std::string about = readable_bytes(job.planned_bytes) + " planned before the first step";
  if (used_bytes > 0) about += ", " + readable_bytes(used_bytes) + " used at most";
  return {{"about", about + "."},
          {"parts", parts},
          {"arena_bytes", plan.at("arena_bytes")},
          {"instructions", plan.at("instructions")},
          {"backward_from", plan.value("backward_from", -1)},
          {"update_from", plan.value("update_from", -1)},
          {"ranges", Json(std::vector<Json>(ranges.begin(), ranges.begin() + static_cast<std::ptrdiff_t>(kept)))},
          {"left_out", ranges.size() - kept}};
}

}  // namespace

void ReportData::start(const JobStart& e) {
  job_ = e;
  steps_ = e.earlier_steps;
  evaluations_ = e.earlier_evaluations;
}

void ReportData::notice(const Json& event, const std::string&) {
  if (event.is_object() && event.contains("unigram"))
    levels_ = {{"unigram", event.at("unigram")}, {"bigram", event.at("bigram")}};
}

Json ReportData::cards() const {
  Json out = Json::array();
  const auto card = [&](const std::string& name, const std::string& value) { out.push_back({name, value}); };
  if (!steps_.empty()) card("training loss at the end", fixed(steps_.back().loss, 4));
  if (!evaluations_.empty()) {
    for (const auto& [name, value] : evaluations_.back().metrics)
      card(name == "loss" ? "held-out loss" : "held-out " + name, fixed(value, 4));
  }
  for (const auto& [name, value] : levels_) card("loss of a " + name + " model", fixed(value, 4));
  card("steps", with_thousands(end_.step));
  card("time", clock_text(end_.seconds));
  if (!steps_.empty() && end_.seconds > 0) {
    card(job_.unit + " a second", short_number(static_cast<double>(end_.step - job_.first_step) *
                                               static_cast<double>(job_.units_per_step) / end_.seconds));
  }
  if (!steps_.empty() && steps_.back().scales())
    card("steps skipped by the loss scale", with_thousands(steps_.back().skipped_steps));
  card("parameters", with_thousands(job_.parameters));
  card("memory planned", readable_bytes(job_.planned_bytes));
  return out;
}

Json ReportData::series() const {
  const auto curve = [&](const std::function<double(const StepDone&)>& value) {
    Points out;
    for (const StepDone& one : steps_) out.emplace_back(static_cast<double>(one.step), value(one));
    return out;
  };
  Json out =
      Json::array({one_series("training", "loss", curve([](const StepDone& s) { return s.loss; }), true, false)});
  std::vector<std::string> metrics;
  for (const Evaluated& one : evaluations_) {
    for (const auto& [name, value] : one.metrics) {
      if (std::find(metrics.begin(), metrics.end(), name) == metrics.end()) metrics.push_back(name);
    }
  }
  for (const std::string& metric : metrics) {
    Points points;
    for (const Evaluated& one : evaluations_) {
      for (const auto& [name, value] : one.metrics) {
        if (name == metric) points.emplace_back(static_cast<double>(one.step), value);
      }
    }
    out.push_back(one_series("held out", metric, points, false, true));
  }
  out.push_back(one_series("learning rate", "learning rate", curve([](const StepDone& s) { return s.learning_rate; }),
                           false, false));
  if (!steps_.empty() && steps_.back().gradient_norm >= 0) {
    out.push_back(one_series("gradient norm", "gradient norm", curve([](const StepDone& s) { return s.gradient_norm; }),
                             false, false));
  }
  if (!steps_.empty() && steps_.back().scales()) {
    out.push_back(
        one_series("loss scale", "loss scale", curve([](const StepDone& s) { return s.loss_scale; }), false, false));
    const auto skipped = [](const StepDone& s) { return static_cast<double>(s.skipped_steps); };
    out.push_back(one_series("steps skipped", "steps skipped", curve(skipped), false, false));
  }
  return out;
}

// Which weights were best, where those at the end are not.
std::string ReportData::best_text() const {
  const Evaluated* best = best_of(evaluations_);
  if (best == nullptr || best->step == evaluations_.back().step) return "";
  return " The best weights are those of step " + with_thousands(best->step) + " (" + metrics_text(best->metrics) +
         "), in " + job_.out + "/best.";
}

Json ReportData::report(const Json& memory, const std::vector<std::pair<std::string, std::string>>& facts) const {
  Json page;
  page["title"] = "Training " + job_.model;
  page["about"] =
      (end_.ended == "steps" ? "Ended after its " + with_thousands(job_.steps) + " steps."
                             : "Ended after " + with_thousands(end_.step) + " of " + with_thousands(job_.steps) +
                                   " steps: " + (end_.reason.empty() ? end_.ended : end_.reason) + ".") +
      (job_.first_step > 0 ? " This run began at step " + with_thousands(job_.first_step) + "." : "") + best_text();
  page["cards"] = cards();
  page["loss_unit"] = job_.unit == "tokens" ? "nats per byte" : "";
  page["smoothing"] = steps_.size() > 50 ? 0.9 : 0.0;
  page["series"] = series();
  Json levels = Json::array();
  for (const auto& [name, value] : levels_) levels.push_back({{"name", name}, {"value", value}});
  page["levels"] = levels;
  page["memory"] = memory_of(memory, job_, steps_.empty() ? 0 : steps_.back().used_bytes);
  page["command"] = job_.command;
  Json rows = Json::array();
  for (const auto& [name, value] : facts) rows.push_back({name, value});
  for (const auto& [name, value] : machine_facts()) rows.push_back({name, value});
  if (!end_.weights_hash.empty()) rows.push_back({"hash of the trained weights", end_.weights_hash});
  page["facts"] = rows;
  page["sample"] = end_.sample;
  return page;
}

std::vector<std::pair<std::string, std::string>> job_facts(const JobOptions& o) {
  std::vector<std::pair<std::string, std::string>> out = {{"model", o.model},
                                                          {"data", o.text.empty() ? o.data : o.text}};
  const auto fact = [&](const char* name, const std::string& value) {
    if (!value.empty()) out.emplace_back(name, value);
  };
  fact("options of the data", o.data_options);
  fact("measured on", !o.validation.empty()        ? o.validation
                      : o.held_out.value_or(0) > 0 ? "a share of " + short_decimal(*o.held_out)
                                                   : "");
  fact("loss", o.loss + (o.loss_output.empty() ? "" : " of " + o.loss_output));
  const auto listed = [](const std::vector<std::string>& patterns) {
    std::string text;
    for (const std::string& one : patterns) text += (text.empty() ? "" : ", ") + one;
    return text;
  };
  if (!o.lora.empty())
    fact("low-rank adapters", listed(o.lora) + "; rank " + std::to_string(o.lora_rank) + ", alpha " +
                                  short_decimal(o.lora_alpha) + ", dropout " + short_decimal(o.lora_dropout));
  fact(o.lora.empty() ? "trained alone" : "trained beside them", listed(o.train_only));
  fact("frozen", listed(o.freeze));
  fact("optimizer", o.optimizer);
  fact("learning rate",
       o.optimizer_values.contains("lr") ? o.optimizer_values.at("lr") + ", " + o.schedule : o.schedule);
  fact("batch", o.batch > 0 ? std::to_string(o.batch) : "");
  fact("seed", std::to_string(o.seed));
  fact("strategy", o.strategy);
  if (o.ranks > 1) fact("ranks", std::to_string(o.ranks));
  if (o.micro_batches > 1) fact("micro-batches", std::to_string(o.micro_batches));
  fact("device", o.device);
  return out;
}

Json plan_page(Json overview, const std::string& model) {
  const auto number = [&](const char* key) { return overview.at(key).get<int64_t>(); };
  const double seconds = overview.at("seconds").get<double>();
  overview["title"] = "Plan of " + model;
  overview["about"] = overview.at("entry").get<std::string>() + " on " + overview.at("device").get<std::string>() + ".";
  overview["cards"] = Json::array({Json::array({"ranks", with_thousands(number("ranks"))}),
                                   Json::array({"samples of a step", with_thousands(number("batch"))}),
                                   Json::array({"micro-batches", with_thousands(number("micro_batches"))}),
                                   Json::array({"memory of a rank", readable_bytes(number("memory_bytes_peak"))}),
                                   Json::array({"a step, predicted", readable_seconds(seconds)})});
  overview["command"] = command_line();
  return overview;
}

std::vector<std::pair<std::string, std::string>> machine_facts() {
  std::string processor = "unknown", line;
  for (std::ifstream info("/proc/cpuinfo"); std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    processor = line.substr(std::min(line.size(), line.find(':') + 2));
    break;
  }
  char date[64] = "";
  const std::time_t now = std::time(nullptr);
  std::tm broken_down{};
  ::gmtime_r(&now, &broken_down);
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S UTC", &broken_down);
  return {{"version", "epl " + version_text()}, {"processor", processor}, {"date", date}};
}

}  // namespace epl::tools
