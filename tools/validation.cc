#include "tools/validation.h"

#include <algorithm>
#include <cmath>

#include "tools/usage.h"
#include "tools/values.h"

namespace epl::tools {

void add_validation_options(CLI::App& app, ValidationOptions& o) {
  app.option_defaults()->group(groups::validation);
  add_metrics_option(app, o.metrics);
  auto* every = app.add_option("--evaluate-every", o.every,
                               "measure every so many steps (default: a quarter of --steps; with --epochs, each epoch)")
                    ->check(integer_value(0));
  app.add_option("--evaluate-epochs", o.every_epochs, "the same in epochs")->check(above(0))->excludes(every);
  app.add_option("--evaluate-batches", o.batches, "batches to measure on; 0: all (default: all; of text 40)")
      ->check(integer_value(0));
  app.add_option("--monitor", o.monitor, "the number that says which weights are best: loss or a metric")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--patience", o.patience,
                 "stop after so many measurements in a row without a better --monitor; 0: never")
      ->check(integer_value(0))
      ->capture_default_str();
}

void Validation::prepare(const Engine& engine) {
  const Json schedules = described(engine, "schedules");
  for (const Json& row : schedules) {
    if (row.at("name") == job_.schedule) watches_ = row.at("watches");
  }
  if (!any()) {
    const char* wants = watches_                              ? "--schedule plateau"
                        : o_.patience > 0                     ? "--patience"
                        : o_.monitor != "loss"                ? "--monitor"
                        : !o_.metrics.empty()                 ? "--metrics"
                        : o_.every > 0 || o_.every_epochs > 0 ? "--evaluate-every"
                                                              : nullptr;
    if (wants)
      throw UsageError(std::string(wants) +
                       " needs data that is not trained on: --held-out SHARE or --validation FILE");
    return;
  }
  measurer_ = std::make_unique<Measurer>(plan_, o_.metrics);
  monitor_ = measurer_->label(o_.monitor);
  higher_is_better_ = measurer_->higher_is_better(monitor_);
}

void Validation::resume(const std::vector<Evaluated>& earlier) {
  for (const Evaluated& one : earlier) {
    for (const auto& [name, value] : one.metrics) {
      if (name == monitor_) note(value, true, better(value));
    }
  }
}

bool Validation::due(int64_t step, int64_t steps) const {
  if (!any()) return false;
  const auto epoch = static_cast<double>(epl_dataset_batches(data_.train.get()));
  const double epochs = o_.every_epochs > 0 ? o_.every_epochs : job_.epochs ? 1 : 0;
  const int64_t every = o_.every > 0 ? o_.every
                        : epochs > 0 ? static_cast<int64_t>(std::llround(epochs * epoch))
                                     : steps / 4;
  return step % std::max<int64_t>(every, 1) == 0;
}

int64_t Validation::batches() const { return o_.batches.value_or(data_.context > 0 ? 40 : 0); }

bool Validation::better(double value) const {
  if (std::isnan(value)) return false;
  return !best_ || (higher_is_better_ ? value > *best_ : value < *best_);
}

void Validation::note(double value, bool counts, bool best) {
  if (best) {
    best_ = value;
    since_best_ = 0;
  } else if (counts) {
    ++since_best_;
  }
}

Evaluated Validation::measure(bool counts, Ending& ending) {
  const Measured measured = measurer_->run(session_, data_.held_out, batches(), &ending);
  Evaluated out;
  out.step = epl_session_steps(session_.get());
  out.metrics = measured.metrics;
  out.samples = measured.samples;
  for (const auto& [name, value] : measured.metrics) {
    if (name != monitor_) continue;
    out.best = better(value);
    note(value, counts, out.best);
    if (watches_ && counts) check(epl_session_observe(session_.get(), value, higher_is_better_));
  }
  return out;
}

std::string Validation::wants_stop() const {
  if (o_.patience == 0 || since_best_ < o_.patience) return "";
  return "no better " + monitor_ + " in " + std::to_string(since_best_) + " measurements";
}

}  // namespace epl::tools
