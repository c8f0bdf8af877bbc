// What is measured of a machine: steps of small models, whose records say what each kernel and each collective took.
#pragma once

#include <string>
#include <vector>

#include "tools/job.h"
#include "tools/json.h"
#include "tools/machine_fit.h"

namespace epl::tools {

struct Probed {
  Measures measures;
  std::string device;                   // as it describes itself
  double host_bandwidth = 0;            // 0: the device reads the memory of the host itself
  double file_bandwidth = 0;            // 0: no folder was named
  std::vector<std::string> unmeasured;  // a sentence each
};

// `seconds` for all of it; what begins within them ends. `folder`: where files are written and read, empty for none.
Probed probe_machine(const JobOptions& common, double seconds, const std::string& folder);

// The kernels and the messages of a record.
void add_measures(const Json& trace, const std::string& probe, Measures& measures);

// Bytes per second of the slower of writing and reading a file that leaves no name.
double measure_file(const std::string& folder);

}  // namespace epl::tools
