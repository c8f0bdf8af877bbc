// Composites whose op has no kernel at all on a backend are replaced by their bodies, again and again until every op
// has a kernel, is elementwise, or is a primitive with a reference. Done once, before the plan, so that the passes see
// what will run.
#pragma once

#include "core/base/function_ref.h"
#include "core/ir/graph.h"

namespace epl {

// `has_kernel`: of an op by its name, for a first operand of this type.
using HasKernel = FunctionRef<bool(std::string_view op, DType dtype)>;
Result<Graph> expand_composites(const Graph& graph, HasKernel has_kernel);

}  // namespace epl
