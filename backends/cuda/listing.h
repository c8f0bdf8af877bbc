// What the machine has: its GPUs, how they are joined, and the libraries of NVIDIA that the pack opens.
#pragma once

#include <string>

#include "core/base/pack_abi.h"
#include "core/base/status.h"

namespace epl::cuda {

// The oldest GPUs for which the compiler of CUDA 13 makes kernels: Turing, of 2018.
inline constexpr int least_capability = 75;
Status check_capability(const std::string& name, int capability);

// Free memory, links and the driver's name only where NVML is.
Status describe_gpu(const std::string& libraries, int ordinal, epl_pack_device_facts& facts);
Status describe_library(const std::string& libraries, int index, epl_pack_library& library);
// "NVLink", or how far apart they are on the bus.
Result<std::string> joined_by(const std::string& libraries, int ordinal, int other);

}  // namespace epl::cuda
