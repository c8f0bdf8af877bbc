// The numbers that a model computes with, when they are to be others than its file says.
#pragma once

#include "core/ir/graph.h"

namespace epl {

// The same graph with float64 wherever it has float32: parameters, buffers and constants are converted, float32 inputs
// are cast behind themselves, and everything in between is computed, and updated, in float64. A constant of one
// element, and a number that is an attribute, is taken for the simple number that it was written as: a file can hold
// no more than the float32 nearest to 1e-5 or to 1 / sqrt(6).
Result<Graph> with_float64(const Graph& graph);

}  // namespace epl
