// What a job is told: a table of options, from which the C API, docs and the settings of the bindings follow.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/options.h"

namespace epl {

// Sorted by what they are about: how long, where it is written, what it is measured by.
const std::vector<Option>& job_options();

struct JobSettings {
  int64_t steps = 0;
  double epochs = 0;
  std::string folder, resume;
  std::vector<std::string> resume_anyway;
  bool overwrite = false;
  int64_t checkpoint_every = 0, keep = 0;
  double checkpoint_seconds = 0;
  int64_t evaluate_every = 0, evaluate_batches = 0;
  double evaluate_epochs = 0;
  std::string metrics, monitor, measured_on;
  int64_t patience = 0;
  bool restore_best = false, check = false;
};
// Of those that are given; the others have their defaults. An error names the option, and is about it (`where`).
Result<JobSettings> read_job_settings(const Attributes& given);

}  // namespace epl
