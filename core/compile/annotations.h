// A plan in the words of the model's file: device configurations of ONNX IR 11, and our options beside them.
//
// Stages are given by nodes of the file (Node::source), because one node of the file may become several of the graph.
// Shards are given by weights, because the node of the file that reads a weight may be a part of a larger node of the
// graph. Where these words do not give the plan again (DeviceAnnotations::complete), the whole strategy goes along, and
// the strategy counts.
#pragma once

#include "core/frontend/model.h"
#include "core/strategy/plan.h"

namespace epl {

Result<DeviceAnnotations> device_annotations(const Plan& plan);

}  // namespace epl
