// What the ONNX standard demands of a node, by opset: how many operands an operator has, of which element types they
// may be, and which attributes of which types.
//
// If an attribute were ignored, a damaged file would train with a default. So a node is checked against the standard
// before its row sees it. operator_table.h is generated from the official schema.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "core/base/tensor_type.h"
#include "frontends/onnx/proto.h"

namespace epl::onnx {

struct OperatorVersion {
  static constexpr int32_t any = std::numeric_limits<int32_t>::max();
  std::string_view domain, name;
  int32_t since;                                             // the opset of its domain that brought it
  int32_t min_inputs, max_inputs, min_outputs, max_outputs;  // `any`: without a limit
  std::string_view attributes;                               // "alpha:float axes:ints!", ! where one must be given
  std::string_view
      types;  // of each input: "real,i32 i64 *", * where any is allowed; the last one holds for all further
};

// The version that holds at an opset. For an operator that is younger than the opset it is the first one, because
// exporters write such nodes. Null for an operator that the standard does not have.
const OperatorVersion* find_operator(std::string_view domain, std::string_view name, int64_t opset);

// Number of operands; attributes that are unknown, given twice, missing or of another type. An attribute of a
// function's body that refers to one of its call's (`ref`) has no value yet, and counts as given.
Status check_node(const Node& node, int64_t opset);

// Element types of inputs (null: absent, or none that is checked). What is computed of another type than the standard's
// has no meaning: the mean of integers would be that of factors that integers round to zero.
Status check_types(const Node& node, int64_t opset, std::span<const TensorType* const> inputs);

// Whether an attribute says that it is of this type, one of schema::AttributeProto, and holds a value of no other.
Status check_attribute(const Attribute& attribute, int32_t type);

}  // namespace epl::onnx
