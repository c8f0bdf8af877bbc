// What a job on text has besides its loss: simple models to compare with, and text that the model writes.
#pragma once

#include "tools/ending.h"
#include "tools/job.h"
#include "tools/listener.h"

namespace epl::tools {

// Tells of the loss of a unigram and of a bigram model of the same training text, on the held-out windows, `batches` of
// them, that the model is measured on. `whole`: not bound to the plan, so that batches are whole.
void measure_baselines(const Engine& engine, const Plan& plan, const DataFiles& whole, const JobOptions& o,
                       int64_t batches, Listener& listener, const Ending& ending);

// Every row of the batch goes on from a window of held-out text; the first row's is returned, "" where the model does
// not predict bytes. `ending`: of the job that it belongs to; one that is asked to end throws.
std::string write_sample(const Engine& engine, const Plan& plan, const Session& session, const DataFiles& data,
                         const JobOptions& o, int64_t bytes, double temperature, Ending& ending);

}  // namespace epl::tools
