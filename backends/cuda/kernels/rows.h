// The rows of the pack, family by family.
#pragma once

#include "backends/cuda/kernel.h"

namespace epl::cuda {

// All of them, best first within an op.
Rows all_rows();

}  // namespace epl::cuda
