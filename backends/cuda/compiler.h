// From a text of CUDA C++ to PTX, by NVRTC. What has been compiled is kept for the process, by capability and text, and
// in a folder for later ones (kernel_cache.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace epl::cuda {

class KernelCache;

// What a text is compiled with for GPUs of this capability.
std::vector<std::string> options_for(int capability);
// `capability` 90: for GPUs of 9.0 and later. `libraries`: the folder in which NVRTC is looked for first. `cache` may
// be null.
Result<std::shared_ptr<const std::string>> compile(const std::string& libraries, KernelCache* cache, int capability,
                                                   const std::string& source);

}  // namespace epl::cuda
