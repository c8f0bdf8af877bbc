// The last row for every op: the record's own meaning, computed through doubles. It allocates and it is slow; programs
// that need it say so (`epl inspect --kernels`).
#pragma once

#include "core/backend/kernel.h"
#include "core/ir/graph.h"

namespace epl {

Result<ChosenKernel> reference_kernel(const Node& node);

}  // namespace epl
