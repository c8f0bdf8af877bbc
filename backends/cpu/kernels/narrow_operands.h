// Rows for convolutions of 16-bit operands whose result is float32 (`wide`), out of rows for float32: operands are
// widened into the workspace first, which rounds nothing. So the bits are those of the widened operands.
#pragma once

#include "core/backend/kernel.h"

namespace epl::cpu {

KernelRow of_narrow_operands(const KernelRow& row);

}  // namespace epl::cpu
