// Operators that the host process brings.
#pragma once

#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {

class OnnxModel;

// The op of a node that is an operator of the host's; null for another node.
const OpDef* host_op(const OnnxModel& model, const Node& node);
// How such a node is imported.
const OnnxOpRow& host_op_row();

}  // namespace epl::onnx
