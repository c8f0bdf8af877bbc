// The verbs of the device, and its kernels as rows of the pack.
#pragma once

#include <vector>

#include "core/base/pack_abi.h"

namespace epl::cuda {

extern const epl_pack_device device_verbs;
const std::vector<const epl_pack_kernel*>& pack_rows();

}  // namespace epl::cuda
