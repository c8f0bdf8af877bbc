#include "tools/measure.h"

#include <algorithm>
#include <cmath>

#include "tools/text.h"
#include "tools/usage.h"

namespace epl::tools {

Measurer::Measurer(const Plan& plan, const std::string& metrics)
    : evaluation_(make<Evaluation>(epl_evaluation_create, plan.get(), metrics.data(), metrics.size())) {
  const Json about = described();
  takes_partial_ = about.at("takes_partial");
  batch_ = about.at("batch");
}

Json Measurer::described() const { return parse_json(text_of(epl_evaluation_describe, evaluation_.get())); }

Measured Measurer::run(const Session& session, const Dataset& dataset, int64_t batches) {
  const int64_t samples = epl_dataset_samples(dataset.get()), all = epl_dataset_batches(dataset.get());
  const int64_t full = takes_partial_ || batch_ == 0 ? all : samples / batch_;
  const int64_t count = batches > 0 ? std::min(batches, full) : full;
  if (count == 0) {
    throw UsageError("the model computes its own loss of a full batch of " + std::to_string(batch_) + "; there are " +
                     std::to_string(samples) + " samples");
  }
  check(epl_evaluation_reset(evaluation_.get()));
  check(epl_dataset_seek(dataset.get(), 0));
  check(epl_evaluation_add_dataset(evaluation_.get(), session.get(), dataset.get(), count, nullptr));
  Measured out;
  const Json about = described();
  for (const Json& one : about.at("metrics")) {
    out.metrics.emplace_back(one.at("name"),
                             one.at("value").is_number() ? one.at("value").get<double>() : std::nan(""));
  }
  out.samples = epl_evaluation_samples(evaluation_.get());
  out.left_out = batches > 0 ? 0 : samples - out.samples;
  return out;
}

void add_metrics_option(CLI::App& app, std::string& metrics) {
  app.option_defaults()->group(groups::validation);
  app.add_option("--metrics", metrics,
                 "what to measure beside the loss, as 'accuracy, top_k(k=3)', or none (default: what suits the loss); "
                 "there are")
      ->type_name("LIST");
}

std::string metrics_text(const std::vector<std::pair<std::string, double>>& metrics, size_t from) {
  std::string out;
  for (size_t i = from; i < metrics.size(); ++i)
    out += (i > from ? ", " : "") + metrics[i].first + " " + fixed(metrics[i].second, 4);
  return out;
}

void check_labels(const Plan& plan, const Dataset& dataset, const std::string& path, const epl_call_options* call) {
  try {
    check(epl_dataset_check(dataset.get(), plan.get(), EPL_ENTRY_TRAIN, call));
  } catch (const ApiError& e) {
    throw ApiError(e.code, path + ": " + e.what(), path);
  }
}

}  // namespace epl::tools
