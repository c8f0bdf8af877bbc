// Annotations as they are written into a file: device configurations of ONNX IR 11 (onnx.proto), and our own metadata
// for what these cannot say. frontends/onnx/annotations.cc reads both.
#pragma once

#include <string>
#include <string_view>

#include "core/frontend/model.h"

namespace epl::onnx {

// Fields of a model, its IR version among them, and of a node, to be added to its message in place of those that are
// there.
std::string model_annotations(const DeviceAnnotations& annotations, std::string_view model);
std::string node_annotation(const NodeAnnotation& annotation);
// Whether a field of a model or of a node is one that these replace.
bool is_replaced_annotation(uint32_t model_tag, std::string_view field);
bool is_own_devices(uint32_t node_tag, std::string_view field);

}  // namespace epl::onnx
