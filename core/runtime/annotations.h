// A plan in the words of the model's file: device configurations of ONNX IR 11, and our options beside them.
#pragma once

#include "core/frontend/model.h"
#include "core/strategy/plan.h"

namespace epl {

// `unsupported` names what the file has no words for: a node of the model in several stages, and a weight of which one
// dimension is cut in several ways.
Result<DeviceAnnotations> device_annotations(const Plan& plan);

}  // namespace epl
