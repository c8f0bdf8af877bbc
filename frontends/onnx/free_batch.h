// Binds a model whose file fixes the number of samples to another number. Exporters write the batch into the constants
// of a few operators. Importing the model twice shows what those constants mean. The first import, at the file's own
// sizes, notes the shape of every value. In the second, at the wanted sizes, a dimension that differs from the note
// carries the batch. Whether samples are independent is not decided here, but by the rules of the ops once there is a
// graph (require_independent_samples in core/strategy/samples.h).
#pragma once

#include <vector>

#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {

// Shapes of the results of nodes, in the order in which nodes are imported, functions once a call.
using ShapesInFile = std::vector<std::vector<Shape>>;

// The batch of the file and the one wanted; 0 where nothing is freed.
struct FreedBatch {
  int64_t from = 0, to = 0;
};

// A shape with the batch in it.
struct FreedShape {
  Shape shape;
  int64_t outer = 1;  // Slot::outer
};
// The shape that a value of the file's shape `out` has now, when it is x with other dimensions and the batch lies in x
// where `now` differs from `file`.
Result<FreedShape> freed_shape(const Shape& file, const Shape& now, int64_t outer, const Shape& out, FreedBatch batch);

// Replaces operands of a node that hold the file's batch. `made` owns the replacements, one place for each operand.
Status free_operands(const Node& node, const std::vector<Shape>& results_in_file, FreedBatch batch, Builder& builder,
                     std::vector<Slot*>& inputs, std::vector<Slot>& made);

// Slot::outer of a node's result, from its operands.
int64_t outer_of_result(const Node& node, const std::vector<Slot>& operands, const Slot& result);

}  // namespace epl::onnx
