// For people: which kernels a program runs, and why better ones were refused.
#pragma once

#include <string>
#include <vector>

#include "core/program/program.h"

namespace epl {

// A line for each kernel with the number of its instructions, and below it a line for each reason for which a better
// one was not taken. `notes` are the device's own (Device::notes), printed first.
std::string report_kernels(const Program& program, const std::vector<std::string>& notes);

}  // namespace epl
