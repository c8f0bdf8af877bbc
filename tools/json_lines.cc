#include "tools/json_lines.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "tools/signals.h"

namespace epl::tools {
namespace {

void print_line(const Json& event) {
  say_json(event);
  flush_output();
}

template <class T> void take(const Json& event, const char* key, T& value) {
  if (auto it = event.find(key); it != event.end() && it->is_number()) value = it->get<T>();
}

}  // namespace

Json event_of(const StepDone& e) {
  Json line = {
      {"event", "step"}, {"step", e.step}, {"epoch", e.epoch}, {"loss", e.loss}, {"learning_rate", e.learning_rate}};
  if (e.gradient_norm >= 0) line["gradient_norm"] = e.gradient_norm;
  if (e.scales()) {
    line["loss_scale"] = e.loss_scale;
    line["skipped_steps"] = e.skipped_steps;
  }
  line["seconds"] = e.seconds;
  line["samples"] = e.samples;
  return line;
}

Json event_of(const Evaluated& e) {
  Json line = {
      {"event", "evaluation"}, {"step", e.step}, {"samples", e.samples}, {"seconds", e.seconds}, {"best", e.best}};
  for (const auto& [name, value] : e.metrics) line[name] = value;
  return line;
}

bool read_event(const Json& event, StepDone& e) {
  if (text_at(event, "event") != "step") return false;
  take(event, "step", e.step);
  take(event, "epoch", e.epoch);
  take(event, "loss", e.loss);
  // JSON has no word for the loss of a batch in which nothing counts.
  if (event.contains("loss") && event["loss"].is_null()) e.loss = std::numeric_limits<double>::quiet_NaN();
  take(event, "learning_rate", e.learning_rate);
  take(event, "gradient_norm", e.gradient_norm);
  take(event, "loss_scale", e.loss_scale);
  take(event, "skipped_steps", e.skipped_steps);
  take(event, "seconds", e.seconds);
  take(event, "samples", e.samples);
  return true;
}

bool read_event(const Json& event, Evaluated& e) {
  if (text_at(event, "event") != "evaluation") return false;
  for (const auto& [key, value] : event.items()) {
    const bool own = key == "step" || key == "samples" || key == "seconds";
    if (!own && value.is_number()) e.metrics.emplace_back(key, value.get<double>());
  }
  take(event, "step", e.step);
  take(event, "samples", e.samples);
  take(event, "seconds", e.seconds);
  e.best = event.contains("best") && event["best"].is_boolean() && event["best"].get<bool>();
  return true;
}

void JsonLines::start(const JobStart& e) {
  rate_name_ = e.unit + "_per_second";
  units_per_step_ = e.units_per_step;
  first_step_ = e.first_step;
  planned_bytes_ = e.planned_bytes;
  earlier_seconds_ = e.earlier_seconds;
  print_line({{"event", "start"},
              {"model", e.model},
              {"out", e.out},
              {"parameters", e.parameters},
              {"trained_tensors", e.tensors},
              {"first_step", e.first_step},
              {"steps", e.steps},
              {"batch", e.batch},
              {"epoch_samples", e.epoch_samples},
              {"planned_bytes", e.planned_bytes},
              {"command", e.command}});
}

void JsonLines::step(const StepDone& e) {
  Json line = event_of(e);
  line[rate_name_] =
      static_cast<double>((e.step - first_step_) * units_per_step_) / std::max(e.seconds - earlier_seconds_, 1e-9);
  line["planned_bytes"] = planned_bytes_;
  line["used_bytes"] = e.used_bytes;
  print_line(line);
}

void JsonLines::evaluated(const Evaluated& e) { print_line(event_of(e)); }

void JsonLines::saved(const CheckpointSaved& e) {
  print_line({{"event", "checkpoint"}, {"step", e.step}, {"path", e.path}, {"best", e.best}});
}

void JsonLines::notice(const Json& event, const std::string&) { print_line(event); }

void JsonLines::warning(const std::string& message) { print_line({{"event", "warning"}, {"message", message}}); }

void JsonLines::done(const JobDone& e) {
  Json line = {{"event", "done"},
               {"step", e.step},
               {"ended", e.ended},
               {"weights_hash", e.weights_hash},
               {"seconds", e.seconds}};
  if (!e.reason.empty()) line["reason"] = e.reason;
  if (!e.resume.empty()) {
    line["resume"] = e.resume;
    line["resume_step"] = e.resume_step;
  }
  if (!e.sample.empty()) line["sample"] = e.sample;
  print_line(line);
}

}  // namespace epl::tools
