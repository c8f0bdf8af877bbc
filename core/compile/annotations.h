// A plan in the words of the model's file: device configurations of ONNX IR 11, and our options beside them.
#pragma once

#include "core/frontend/model.h"
#include "core/strategy/plan.h"

namespace epl {

Result<DeviceAnnotations> device_annotations(const Plan& plan);

}  // namespace epl
