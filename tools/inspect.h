// epl inspect: what a model, a checkpoint or a data file holds, for people.
#pragma once

#include <string>

#include "tools/job.h"

namespace epl::tools {

// Without a path, what the build can do. `all`: lists are printed to their end.
int run_inspect(const JobOptions& o, const std::string& path, bool all);

}  // namespace epl::tools
