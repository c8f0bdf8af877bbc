// A case in several processes of this host, each with its part of the ranks.
#pragma once

#include <string>

#include "tools/case.h"
#include "tools/json.h"

namespace epl::tools {

// The line of `epl check --json` about a case, and what such a line says.
Json outcome_json(const std::string& name, const Outcome& outcome);
Json error_json(const std::string& name, const std::exception& error);

// Trains with `o.job.ranks` ranks in as many processes as divide them, at most `o.processes`. Every process must find
// the same. Throws what they say where they cannot run.
Outcome run_case_in_processes(const CheckOptions& o, const std::string& folder);

}  // namespace epl::tools
