// Operators of a file that are not imported: all at once, with their nodes, why, and what to do.
#pragma once

#include "frontends/onnx/model.h"

namespace epl::onnx {

// `wanted`: the values that are needed; none where all nodes are.
Status check_operators(const OnnxModel& model, const std::vector<std::string>& wanted);

}  // namespace epl::onnx
