// What the command line says of a model's inputs and of its loss (sizes, samples, values), and the warnings about them.
#pragma once

#include "tools/job.h"

namespace epl::tools {

// The samples of a step: --batch; else what --shape and --symbol say; else what the model fixes, unless --free-batch;
// else 8.
int64_t batch_of(const Model& model, const JobOptions& o);
// Samples in a batch of a dataset that was opened with `batch`, where 0 says that a sample of the file is a full batch.
int64_t samples_of_batch(const Model& model, const Dataset& dataset, int64_t batch, const JobOptions& o);
// --batch-dim, --value, --free-batch and --no-peel, which need no look at the model.
void bind_names(const Engine& engine, const Trainer& trainer, const JobOptions& o);
// Binds the inputs (and the target) of a trainer to the batches of a dataset; what does not fit is an error that says
// what to do.
void bind_inputs(const Trainer& trainer, const Model& model, const Dataset& dataset, const JobOptions& o);
// Binds open dimensions without data: by --shape and --symbol, samples by batch_of, the second dimension by --context,
// others to `fallback`; 0 is an error that says the option to type.
void bind_open(const Trainer& trainer, const Model& model, const JobOptions& o, int64_t fallback);
// What to know before training: warnings about the file, then how its inputs and its loss were taken.
std::vector<std::string> warnings_of(const Model& model, const Plan& plan);

}  // namespace epl::tools
