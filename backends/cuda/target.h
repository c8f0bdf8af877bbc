// What kernels are prepared for: a GPU, or what is known of one that need not be there. The handle of a device
// (core/base/pack_abi.h) is one of these.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/gpu.h"

namespace epl::cuda {

struct Target {
  std::shared_ptr<Gpu> gpu;  // null: kernels are planned, and none is launched
  int capability = 0, processors = 0;
  std::string options{};  // that texts are compiled with, a line each, where there is no GPU
  // GPUs of its kind: what is prepared for this one is launched on them too.
  std::vector<std::shared_ptr<Gpu>> alike{};
};

}  // namespace epl::cuda
