// The samples of op records as data: operand types with ranges of values, and attributes. Tests of meaning, gradients,
// sharding rules and kernels are made from these, so that a new op is tested by writing its record.
//
// Text: "f32[4,7], i64[3](0..7), -, f32[](0.5..1) {axis=1}". `-` is an absent operand; (low..high) bounds the values,
// high excluded for integers. Without a range floats lie in [-2, 2), integers in [0, 4).
#pragma once

#include <string_view>
#include <vector>

#include "core/ir/op.h"

namespace epl {

struct SampleOperand {
  bool present = true;
  TensorType type;
  double low = -2, high = 2;
};

struct Sample {
  std::vector<SampleOperand> operands;
  Attributes attributes;  // completed with the op's defaults

  // Operand types for infer_types; null for absent operands. They point into this sample.
  std::vector<const TensorType*> types() const;
  // Values drawn from the ranges; an absent operand is an empty tensor. The same seed gives the same values.
  std::vector<Tensor> values(uint64_t seed) const;
  // The same sample in another float type: operands of the type of its first float operand, and float cast targets.
  Sample with_floats(DType type) const;
};

Result<Sample> parse_sample(const OpDef& op, std::string_view text);

}  // namespace epl
