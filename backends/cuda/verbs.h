// The verbs of the device, and its kernels as rows of the pack.
#pragma once

#include <vector>

#include "backends/cuda/kernel.h"
#include "core/base/pack_abi.h"

namespace epl::cuda {

extern const epl_pack_device device_verbs;
const std::vector<const epl_pack_kernel*>& pack_rows();
// Of a kernel that a row has prepared for a target without a GPU, the launch of a text with this number; null behind
// the last one.
const Launch* text_launch(const void* kernel, int index);

}  // namespace epl::cuda
