// Low-rank adapters on the command line.
#pragma once

#include "tools/job.h"

namespace epl::tools {

void add_adapter_options(CLI::App& app, JobOptions& o);
// The parameters that a checkpoint holds as trained: its adapters are declared as they were in training, and what is
// trained beside them is told.
void match_adapters(JobOptions& o, const Json& checkpoint, const std::vector<std::string>& trained);
void add_adapters(epl_trainer* trainer, const JobOptions& o);

}  // namespace epl::tools
