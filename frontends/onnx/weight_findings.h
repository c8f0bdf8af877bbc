// Findings about the weights of a file: tables that would be trained, weights that would not, 16-bit numbers.
#pragma once

#include <string>
#include <vector>

#include "frontends/onnx/importer.h"

namespace epl::onnx {

// What a triangular mask and what equal steps are called.
inline constexpr std::string_view triangular_mask = "a mask";
inline constexpr std::string_view even_numbers = "evenly spaced numbers";

// Which kind of fixed table the numbers are, recognised by their values: "a window", "a bank of filters", "a
// transform", "sinusoids", "a mask", "zeros and ones", "evenly spaced numbers"; empty if they look like weights.
std::string table_kind(const epl::Tensor& value);

void add_weight_findings(const OnnxModel& model, const ParameterRule& rule, std::vector<ModelFinding>& out);

}  // namespace epl::onnx
