// Low-rank adapters on the command line.
#pragma once

#include "tools/job.h"

namespace epl::tools {

void add_adapter_options(CLI::App& app, JobOptions& o);
// The parameters that a checkpoint holds as trained: adapters must be declared, and what is trained beside them is told.
void match_adapters(JobOptions& o, const std::vector<std::string>& trained);
void add_adapters(epl_trainer* trainer, const JobOptions& o);

}  // namespace epl::tools
