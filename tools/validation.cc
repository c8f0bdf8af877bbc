#include "tools/validation.h"

#include "tools/measure.h"
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

void check_validation(const ValidationOptions& o, const JobOptions& job, const DataFiles& data) {
  if (data.held_out) return;
  bool watches = false;
  const Json schedules = described("schedules");
  for (const Json& row : schedules) {
    if (row.at("name") == job.schedule) watches = row.at("watches");
  }
  const char* wants = watches                             ? "--schedule plateau"
                      : o.patience > 0                    ? "--patience"
                      : o.monitor != "loss"               ? "--monitor"
                      : !o.metrics.empty()                ? "--metrics"
                      : o.every > 0 || o.every_epochs > 0 ? "--evaluate-every"
                                                          : nullptr;
  if (wants == nullptr) return;
  throw UsageError(std::string(wants) + " needs data that is not trained on: --held-out SHARE or --validation FILE");
}

int64_t validation_batches(const ValidationOptions& o, const DataFiles& data) {
  return o.batches.value_or(data.context > 0 ? 40 : 0);
}

Json validation_settings(const ValidationOptions& o, const JobOptions& job, const DataFiles& data) {
  if (!data.held_out) return Json::object();
  const bool each_epoch = job.epochs && o.every == 0 && o.every_epochs == 0;
  Json measured_on = Json::object();
  if (!job.validation.empty()) {
    measured_on["file"] = job.validation;
  } else {
    measured_on["share"] = data.context > 0 ? job.text_held_out() : *job.held_out;
    measured_on["drawn"] = data.context > 0 ? "the end of the text" : "by split_seed 0";
  }
  return {{"metrics", o.metrics},
          {"monitor", o.monitor},
          {"patience", o.patience},
          {"evaluate_every", o.every},
          {"evaluate_epochs", each_epoch ? 1 : o.every_epochs},
          {"evaluate_batches", validation_batches(o, data)},
          {"measured_on", measured_on}};
}

}  // namespace epl::tools
