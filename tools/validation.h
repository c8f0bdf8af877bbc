// What a model is measured on while it learns: the options of the command line, and what a job is told of them.
#pragma once

#include <optional>

#include "tools/job.h"

namespace epl::tools {

struct ValidationOptions {
  int64_t every = 0;        // steps between measurements; 0: a quarter of all, or an epoch where epochs were asked for
  double every_epochs = 0;  // the same in epochs
  std::optional<int64_t> batches;  // at most; of text 40 unless named, else all
  std::string metrics, monitor = "loss";
  int64_t patience = 0;  // measurements without a better one before training ends; 0: it never does
};
void add_validation_options(CLI::App& app, ValidationOptions& o);

// Throws where an option needs held-out data and there is none.
void check_validation(const ValidationOptions& o, const JobOptions& job, const DataFiles& data);
// Batches to measure on; 0: all.
int64_t validation_batches(const ValidationOptions& o, const DataFiles& data);
// The settings of a job that say so (epl_job_set).
Json validation_settings(const ValidationOptions& o, const JobOptions& job, const DataFiles& data);

}  // namespace epl::tools
