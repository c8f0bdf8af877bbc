// Elements of 16 bits as float32 and back, by the functions of the host.
#pragma once

#include "backends/cuda/text/machine.cuh"

namespace epl {
#include "core/base/half.inc"
}  // namespace epl
