// Composites whose op has no kernel at all on a backend are replaced by their bodies, again and again until every op
// has a kernel, is elementwise, or is a primitive with a reference. Done once, before the plan, so that the passes see
// what will run.
#pragma once

#include "core/backend/kernel.h"
#include "core/ir/graph.h"

namespace epl {

Result<Graph> expand_composites(const Graph& graph, const KernelTable& kernels);

}  // namespace epl
