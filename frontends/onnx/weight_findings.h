// What the weights of a file tell its owner before training: tables that would be trained, weights that would not,
// 16-bit numbers.
#pragma once

#include <string>
#include <vector>

#include "frontends/onnx/importer.h"

namespace epl::onnx {

// What fixed table the numbers are, told by their shape: "a window", "a bank of filters", "a transform", "sinusoids";
// empty for what looks like weights.
std::string table_kind(const epl::Tensor& value);

void add_weight_findings(const OnnxModel& model, const ParameterRule& rule, std::vector<ModelFinding>& out);

}  // namespace epl::onnx
