// Winograd's convolution where the CPU takes it: its bits are its own. See backends/cpu/kernels/conv_winograd.h.
#pragma once

#include "backends/cuda/kernel.h"

namespace epl::cuda {

Result<Kernel> winograd_forward(const Query& query);
Result<Kernel> winograd_grad_input(const Query& query);
Result<Kernel> winograd_grad_weight(const Query& query);

}  // namespace epl::cuda
