// Softmax and related operators. Until opset 12 they look at their operand as a matrix: the dimensions from `axis` on
// are one, and are normalised together.
#include <algorithm>

#include "core/ir/op.h"
#include "core/ir/sums.h"
#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {
namespace {

// f(x, axis) gives a result of x's shape.
using Along = Var (*)(Builder&, const Var& x, int64_t axis);

Var softmax(Builder& b, const Var& x, int64_t axis) {
  return in_type_of_sums(b, x, [&](const Var& wide) { return b.emit("softmax", {wide}, {{"axis", axis}}); });
}
Var log_softmax(Builder& b, const Var& x, int64_t axis) {
  return in_type_of_sums(b, x, [&](const Var& wide) { return b.emit("log_softmax", {wide}, {{"axis", axis}}); });
}
Var hardmax(Builder& b, const Var& x, int64_t axis) {
  Var at = b.emit("arg_max", {x}, {{"axis", axis}, {"keep", false}, {"last", false}});
  epl::Tensor values({x.dtype(), {2}});
  values.set(1, 1);
  return b.emit("one_hot", {at, b.constant(values)}, {{"axis", axis}, {"depth", x.dim(static_cast<int>(axis))}});
}

template <Along f> void along(Import& i) { i.set(0, f(i.b, i.in(0), i.axis("axis", -1, i.type(0).ndim()))); }

template <Along f> void as_matrix(Import& i) {
  Var x = i.in(0);
  const int64_t axis = i.axis("axis", 1, x.ndim());
  const Shape shape = x.shape();
  // One dimension that is more than 1 is that dimension alone: no change of shape is needed.
  auto wide = [](int64_t size) { return size != 1; };
  const auto from = shape.begin() + std::min<int64_t>(axis, x.ndim()), found = std::find_if(from, shape.end(), wide);
  if (std::count_if(from, shape.end(), wide) <= 1)
    return i.set(0, f(i.b, x, found == shape.end() ? axis : found - shape.begin()));
  const Shape matrix = {element_count(Shape(shape.begin(), from)), element_count(Shape(from, shape.end()))};
  i.set(0, i.b.reshape(f(i.b, i.b.reshape(x, matrix), 1), shape));
}

}  // namespace

EPL_ONNX_OP(Softmax) { return {.run = as_matrix<softmax>}; }
EPL_ONNX_OP(Softmax, 13) { return {.run = along<softmax>}; }
EPL_ONNX_OP(LogSoftmax) { return {.run = as_matrix<log_softmax>}; }
EPL_ONNX_OP(LogSoftmax, 13) { return {.run = along<log_softmax>}; }
EPL_ONNX_OP(Hardmax) { return {.run = as_matrix<hardmax>}; }
EPL_ONNX_OP(Hardmax, 13) { return {.run = along<hardmax>}; }

}  // namespace epl::onnx
