// The rows of the pack, by family.
#pragma once

#include "core/base/pack_abi.h"

namespace epl::onednn {

extern const epl_pack_kernel matmul_row, linear_row, linear_grad_weight_row;
extern const epl_pack_kernel conv_row, conv_grad_input_row, conv_grad_weight_row;

}  // namespace epl::onednn
