// Findings about the weights of a file: tables that would be trained, weights that would not, 16-bit numbers.
#pragma once

#include <string>
#include <vector>

#include "frontends/onnx/importer.h"

namespace epl::onnx {

// What a triangular mask is called.
inline constexpr std::string_view triangular_mask = "a mask";

// Which kind of fixed table the numbers are, recognised by their values: "a window", "a bank of filters", "a
// transform", "sinusoids", "a mask", "evenly spaced numbers"; empty if they look like weights.
std::string table_kind(const epl::Tensor& value);

void add_weight_findings(const OnnxModel& model, const ParameterRule& rule, std::vector<ModelFinding>& out);

}  // namespace epl::onnx
