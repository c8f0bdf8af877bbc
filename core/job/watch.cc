#include "core/job/watch.h"

#include <algorithm>
#include <cmath>

#include "core/runtime/facts.h"

namespace epl {
namespace {

// The option that means nothing without held-out data; null: none does.
const char* wants_held_out(const JobSettings& s, bool watches) {
  return watches                                         ? "schedule plateau"
         : s.patience > 0                                ? "patience"
         : s.monitor != "loss"                           ? "monitor"
         : !s.metrics.empty()                            ? "metrics"
         : s.restore_best                                ? "restore_best"
         : s.evaluate_every > 0 || s.evaluate_epochs > 0 ? "evaluate_every"
                                                         : nullptr;
}

}  // namespace

Result<std::unique_ptr<Watch>> Watch::create(const Session& session, const JobSettings& settings, const Dataset& data,
                                             const Dataset* held_out) {
  std::unique_ptr<Watch> made(new Watch(settings, data.endless() ? 0 : data.batches()));
  const ScheduleRow* schedule = session.plan().schedule().row;
  made->watches_ = schedule != nullptr && schedule->watches;
  if (held_out == nullptr) {
    const char* wants = wants_held_out(settings, made->watches_);
    if (wants == nullptr) return made;
    return invalid(wants, " needs data that is not trained on; give the job held-out data").at("held_out");
  }
  if (held_out->endless() && settings.evaluate_batches == 0)
    return invalid("nobody knows how many batches the held-out data has; evaluate_batches says how many to measure on")
        .at("evaluate_batches");
  EPL_ASSIGN(made->evaluation_, Evaluation::create(session.shared_plan(), settings.metrics));
  const Result<Evaluation::Number> monitored = made->evaluation_->result(settings.monitor);
  if (!monitored.ok()) return monitored.status().at("monitor");
  made->monitor_ = monitored->name;
  made->higher_is_better_ = monitored->higher_is_better;
  return made;
}

bool Watch::due(int64_t step, int64_t steps) const {
  if (!any()) return false;
  const double epochs = settings_.evaluate_epochs > 0 ? settings_.evaluate_epochs : settings_.epochs > 0 ? 1 : 0;
  const int64_t every = settings_.evaluate_every > 0 ? settings_.evaluate_every
                        : epochs > 0 ? static_cast<int64_t>(std::llround(epochs * static_cast<double>(epoch_)))
                                     : steps / 4;
  return every > 0 ? step % every == 0 : steps > 0 || epochs > 0;
}

Result<Watch::Measured> Watch::measure(Session& session, Dataset& held_out, const Stop& stop) {
  const bool endless = held_out.endless(), partial = evaluation_->takes_partial() || evaluation_->batch() == 0;
  const int64_t wanted = settings_.evaluate_batches;
  const int64_t full = endless ? wanted : partial ? held_out.batches() : held_out.samples() / evaluation_->batch();
  const int64_t count = wanted > 0 ? std::min(wanted, full) : full;
  if (count == 0) {
    return invalid("the model computes its own loss of a full batch of ", evaluation_->batch(), "; there are ",
                   held_out.samples(), " samples of held-out data");
  }
  evaluation_->reset();
  if (!endless) EPL_TRY(held_out.seek(0));
  for (int64_t i = 0; i < count; ++i) EPL_TRY(evaluation_->add(session, held_out, 1, {.stop = stop}));
  Measured out;
  out.samples = evaluation_->samples();
  for (const Evaluation::Number& one : evaluation_->results()) {
    out.metrics.emplace_back(one.name, one.value);
    if (one.name == monitor_) out.monitored = one.value;
  }
  out.best = better(out.monitored);
  return out;
}

bool Watch::better(double value) const {
  if (std::isnan(value)) return false;
  return !best_ || (higher_is_better_ ? value > *best_ : value < *best_);
}

void Watch::count(double value, int64_t step, bool counts) {
  if (better(value)) {
    best_ = value;
    best_step_ = step;
    since_best_ = 0;
  } else if (counts) {
    ++since_best_;
  }
}

Status Watch::note(Session& session, const Measured& measured, int64_t step, bool counts) {
  if (watches_ && counts) EPL_TRY(session.host_state().observe(measured.monitored, higher_is_better_));
  count(measured.monitored, step, counts);
  return {};
}

void Watch::remember(const std::vector<Json>& lines) {
  for (const Json& line : lines) {
    const Json *event = line.find("event"), *value = line.find(monitor_), *step = line.find("step");
    if (event == nullptr || *event != Json("evaluation") || value == nullptr || !value->is_number()) continue;
    count(value->get<double>(), step->get<int64_t>(), true);
  }
}

// Which samples those are follows from this alone, so another job can hold out the same.
Result<Watch::Told> Watch::tell(const Dataset& held_out, const Json& earlier) const {
  Told out;
  out.event = {{"event", "held_out"}, {"samples", held_out.endless() ? int64_t{-1} : held_out.samples()}};
  if (!settings_.measured_on.empty()) {
    EPL_ASSIGN(const Json own, parse_json(settings_.measured_on));
    if (!own.is_object()) return invalid("measured_on is not an object of JSON").at("measured_on");
    for (const auto& [key, value] : own.items()) out.event[key] = value;
  } else {
    const Facts facts = describe_data(held_out);
    if (const auto hash = facts.find("data.hash"); hash != facts.end()) out.event["data"] = hash->second;
  }
  out.event["batches"] = settings_.evaluate_batches;
  for (const auto& [key, before] : earlier.items()) {
    const Json* now = out.event.find(key);
    if (key == "monitor" || (now != nullptr && *now == before)) continue;
    out.same = false;
    out.warnings.push_back(cat("this run was measured on other data until now: ", key, " was ", print_json(before),
                               ", now it is ", now == nullptr ? "not given" : print_json(*now),
                               "; which weights are the best, and patience, begin anew"));
  }
  const Json* before = earlier.find("monitor");
  if (before != nullptr && *before != Json(monitor_))
    out.warnings.push_back(
        cat("monitor was ", before->is_string() ? before->text() : print_json(*before), ", now it is ", monitor_));
  out.event["monitor"] = monitor_;
  return out;
}

std::string Watch::wants_end() const {
  if (settings_.patience == 0 || since_best_ < settings_.patience) return "";
  return cat("no better ", monitor_, " in ", since_best_, " measurements");
}

}  // namespace epl
