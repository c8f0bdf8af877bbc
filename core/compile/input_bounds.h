// What the integers of inputs may be, from the ops that they reach: class indices, rows of tables. A session looks at a
// batch before it computes anything, so that a wrong label is an error with its position and not a loss that is not a
// number.
#pragma once

#include <string>
#include <vector>

#include "core/compile/index_source.h"
#include "core/ir/index_range.h"
#include "core/train/loss.h"

namespace epl {

struct InputBound {
  int input = 0;  // in the order of the graph's inputs
  IndexRange range;
  std::string node;              // that gathers or scatters by it
  ElementArithmetic arithmetic;  // what the model makes of an element before it is an index
  bool holds(int64_t value) const {
    return (value >= range.low && value < range.high) || (range.ignored && value == *range.ignored);
  }
};

// An input reaches an op as it is, through ops that only move elements, or with arithmetic on each of them. `loss`
// bounds the target where its classes are known.
std::vector<InputBound> input_bounds(const Graph& graph, const LossFacts& loss, std::string_view target);

// The first element that breaks the bound, -1 for none.
int64_t find_out_of_bounds(const InputBound& bound, const Tensor& tensor);
// "holds 7, which is not a class of 3": what is wrong with a value.
std::string bound_text(const InputBound& bound, const std::string& value);
// The same of an element, with what the model makes of it.
std::string bound_text(const InputBound& bound, const Tensor& tensor, int64_t element);
// Where an element stands in the dimension that counts samples; -1 where none does.
int64_t row_of(const TensorType& type, int dim, int64_t element);
// "row 3", or "element 12" where no dimension counts samples.
std::string element_text(const TensorType& type, int dim, int64_t element);

}  // namespace epl
