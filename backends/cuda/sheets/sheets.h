// NVIDIA's GPUs as data: what plans are made by where there is no GPU, or one of these. They are in libepl.so.
#pragma once

#include <span>

#include "core/backend/sheet.h"

namespace epl::cuda {

std::span<const DeviceSheet> device_sheets();

}  // namespace epl::cuda
