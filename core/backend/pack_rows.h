// Kernels of a device that a pack is, as rows of its table. See pack_device.h.
#pragma once

#include <memory>
#include <vector>

#include "core/backend/pack_stream.h"

namespace epl {

// Prepared for `opened`, which it keeps, and launched on the streams of devices of its kind.
KernelRow pack_row(const epl_pack_kernel& kernel, const std::shared_ptr<OpenedPack>& opened);

// What a kernel that was prepared is compiled from; null: the commands of the device that are no kernels.
std::vector<KernelText> pack_texts(const OpenedPack& opened, const void* kernel);

}  // namespace epl
