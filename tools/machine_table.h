// The table that epl calibrate writes, and how far its predictions are from steps that were taken.
#pragma once

#include <string>
#include <vector>

#include "tools/job.h"
#include "tools/json.h"
#include "tools/machine_fit.h"
#include "tools/machine_probes.h"

namespace epl::tools {

// What core/backend/sheet.h reads. `core`: the numbers are those of one core of a processor.
Json machine_table(const FittedMachine& fitted, const Probed& probed, bool core, double seconds);

// A class of what was measured, for people: how far the fit is from its median kernel.
struct ProbeError {
  std::string what;
  int64_t count = 0;
  double error = 0;
};
std::vector<ProbeError> errors_by_probe(const FittedMachine& fitted, const Measures& measures);

// A model under a layout: what a plan says of a step, and what steps take.
struct Checked {
  std::string model, layout;
  double predicted = 0, measured = 0;
  std::string impossible;  // why it has no step; else empty
  double error() const { return predicted / measured - 1; }
};
std::vector<Checked> check_predictions(const JobOptions& common, double seconds);

}  // namespace epl::tools
