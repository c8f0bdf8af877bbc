// The body of a local function as one call of it means it.
#pragma once

#include <vector>

#include "frontends/onnx/model.h"

namespace epl::onnx {

// The nodes of the function, and of the graphs within them at any depth. Attributes that refer to one of the call's
// have its value, or that of the function's default; those that are given nowhere are absent, as are operands that the
// call does not give. The error names the node of the function that the result does not suit.
Result<std::vector<Node>> body_of(const OnnxModel& model, const Function& function, const Node& call);

// Of the nodes of the graph itself (`function` is null), or of a function: whether what their attributes refer to is
// there.
Status check_references(const std::vector<Node>& nodes, const Function* function);

}  // namespace epl::onnx
