// The last row for every op: the record's own meaning, computed through doubles. It is slow; programs that need it say
// so (`epl inspect --kernels`).
#pragma once

#include "core/backend/kernel.h"
#include "core/ir/graph.h"

namespace epl {

// Refused where the host, on which it runs, cannot read the memory of `device` (null: it can).
Result<ChosenKernel> reference_kernel(const Node& node, const KernelQuery& query, const Device* device);

}  // namespace epl
