// The operands by which a step rounds states at random (core/ops/optimizer_bf16.cc): the numbers of rows and of columns
// of a tensor, and the key of the step.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/ir/graph.h"

namespace epl {

// Tensors of one shape share their numbers. A shape is cut in two where the numbers of both parts are fewest, so a
// matrix of 4096 x 1024 takes 4096 + 1024 numbers of 4 bytes.
class ElementNumbers {
 public:
  explicit ElementNumbers(Graph& graph) : graph_(graph) {}
  struct Operands {
    Value rows, columns;
  };
  Operands of(const Shape& shape);
  // Of how many dimensions the rows are.
  static size_t row_dims(const Shape& shape);

 private:
  Value numbers(const std::string& name, const Shape& shape);
  Graph& graph_;
  std::map<std::string, Value> known_;
};

// The name of the scalar, and its value: 53 bits that follow from the seed and the step.
inline constexpr std::string_view rounding_key_scalar = "epl.rounding_key";
double rounding_key(uint64_t seed, int64_t step);

}  // namespace epl
