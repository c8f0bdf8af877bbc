// Annotations as they are written into a file: device configurations of ONNX IR 11 (onnx.proto), and our own metadata
// for what these cannot say. frontends/onnx/annotations.cc reads both.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/frontend/model.h"

namespace epl::onnx {

// Fields of a model, its IR version among them, and of a node, to be added to its message in place of those that are
// there. `says_all`: its nodes say all that scopes say.
std::string model_annotations(const DeviceAnnotations& annotations, bool says_all, std::string_view model);
// Of a node that is made for `source` and reads or holds these tensors; empty: nothing is said of it. The weights whose
// shards are said go into `said`.
std::string node_annotation(const DeviceAnnotations& annotations, std::string_view source,
                            const std::vector<std::string_view>& tensors, std::set<std::string_view>& said);
// Whether a field of a model or of a node is one that these replace.
bool is_replaced_annotation(uint32_t model_tag, std::string_view field);
bool is_own_devices(uint32_t node_tag, std::string_view field);

}  // namespace epl::onnx
