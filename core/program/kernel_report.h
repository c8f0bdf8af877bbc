// Which kernels a program runs, and why better ones were refused; what they are compiled from.
#pragma once

#include <string>
#include <vector>

#include "core/backend/device.h"
#include "core/program/program.h"

namespace epl {

// A line for each kernel with the number of its instructions, and below it a line for each reason for which a better
// one was not taken. `notes` are the device's own (Device::notes), printed first.
std::string report_kernels(const Program& program, const std::vector<std::string>& notes);

// Whether a device keeps the steps of a rank and carries them out again, or why not: a line. Empty where it keeps
// nothing.
std::string report_recording(const Device& device, int64_t ranks);

// What the kernels of a program are compiled from, and the commands of its device, where that need not be there: a line
// of JSON for each. Equal ones stand once.
std::string report_texts(const Program& program, const Device& device);

}  // namespace epl
