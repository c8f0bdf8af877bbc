// Makes a model compute in another element type than its file says.
#pragma once

#include "core/ir/graph.h"

namespace epl {

// The same graph with float64 wherever it has float32. Parameters, buffers and constants are converted, float32 inputs
// get a cast, and everything else is computed and updated in float64. A constant of one element, or a number in an
// attribute, is taken for the simple number that it was written as: a file can hold only the float32 nearest to 1e-5 or
// to 1 / sqrt(6).
Result<Graph> with_float64(const Graph& graph);

}  // namespace epl
