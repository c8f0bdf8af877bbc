// Loss and metrics of a session over a dataset, every sample of it counted.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tools/api.h"
#include "tools/json.h"

namespace epl::tools {

using Evaluation = Handle<epl_evaluation, epl_evaluation_destroy>;

struct Measured {
  std::vector<std::pair<std::string, double>> metrics;  // the loss first
  int64_t samples = 0;
  int64_t left_out = 0;  // where the model computes its own loss, the samples behind the last full batch
};

class Measurer {
 public:
  // `metrics` as epl_evaluation_create takes them; a name that does not fit is an error here.
  Measurer(const Plan& plan, const std::string& metrics);
  // The first `batches` batches of a dataset that is bound to the plan, 0 for all of them.
  Measured run(const Session& session, const Dataset& dataset, int64_t batches);

 private:
  Json described() const;
  Evaluation evaluation_;
  bool takes_partial_ = true;
  int64_t batch_ = 0;
};

void add_metrics_option(CLI::App& app, std::string& metrics);

// "accuracy 0.9133, mae 0.02".
std::string metrics_text(const std::vector<std::pair<std::string, double>>& metrics, size_t from = 0);

// Looks for labels and indices that the model cannot take before anything runs; an error names the file.
void check_labels(const Plan& plan, const Dataset& dataset, const std::string& path,
                  const epl_call_options* call = nullptr);

}  // namespace epl::tools
