// Convolution and its gradients by cuDNN, where bits may be the device's own and follow from all that a call has.
#pragma once

#include "backends/cuda/kernel.h"

namespace epl::cuda {

Result<Kernel> dnn_forward(const Query& query);
Result<Kernel> dnn_grad_input(const Query& query);
Result<Kernel> dnn_grad_weight(const Query& query);

}  // namespace epl::cuda
