// What `auto.auto_parallel` finds, as people read it: why a plan was taken, and what more devices are worth.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/api.h"

namespace epl::tools {

// What the notes of a plan say of the search, one after another.
std::vector<std::string> search_notes(const Plan& plan);
int print_why(const Plan& plan, bool json);

// "1,2,6", or "1..8" for 1, 2, 4 and 8. Throws UsageError.
std::vector<int64_t> device_counts(const std::string& text);

// A step on so many devices.
struct Scaled {
  int64_t devices = 0;
  double seconds = 0;
};
// The last number of devices that makes a step a tenth shorter than fewer do; the numbers ascend.
int64_t worth_of_devices(const std::vector<Scaled>& steps);
// A line for each number of devices, whose plan `make` makes, and where adding devices stops to pay. A number that no
// plan is possible for is said.
int print_scaling(const std::vector<int64_t>& counts, const std::function<Plan(int64_t devices)>& make, bool json);

}  // namespace epl::tools
