// What must hold for a file before anything is imported from it: nodes are in an order in which they can run, every
// value has one definition, operators follow the standard, and functions unfold into a bounded number of nodes.
#pragma once

#include "frontends/onnx/model.h"

namespace epl::onnx {

inline constexpr int max_call_depth = 64;      // of functions in functions, and of branches in them
inline constexpr int64_t max_nodes = 250'000;  // after functions are unfolded

Status check_file(const OnnxModel& model);

}  // namespace epl::onnx
