// What must hold of a file before anything is imported from it: nodes in an order in which they can run, one definition
// for every value, operators as the standard has them, and functions that unfold into a number of nodes that can be
// handled.
#pragma once

#include "frontends/onnx/model.h"

namespace epl::onnx {

inline constexpr int max_call_depth = 64;      // of functions in functions, and of branches in them
inline constexpr int64_t max_nodes = 250'000;  // after functions are unfolded

Status check_file(const OnnxModel& model);

}  // namespace epl::onnx
