// Cross-entropy of class scores against class indices (torch.nn.CrossEntropyLoss, reduction "mean").
#include "core/train/loss.h"

namespace epl {
namespace {

Shape without(Shape shape, int axis) {
  shape.erase(shape.begin() + axis);
  return shape;
}

// The dimension of the scores that the target lacks: the last one that fits.
Result<int> class_axis(const TensorType& scores, const Ints& wanted, const std::optional<TensorType>& target) {
  const int ndim = scores.ndim();
  if (ndim == 0) return invalid("needs scores with a dimension of classes, got ", scores.text());
  if (wanted.size() > 1) return invalid("option axis is one dimension, got ", wanted);
  if (!wanted.empty()) {
    const int64_t axis = wanted[0] < 0 ? wanted[0] + ndim : wanted[0];
    if (axis < 0 || axis >= ndim) return invalid("scores ", scores.text(), " have no dimension ", wanted[0]);
    if (target && target->shape != without(scores.shape, static_cast<int>(axis))) {
      return invalid("scores ", scores.text(), " with classes on dimension ", axis, " do not fit target ", target->text());
    }
    return static_cast<int>(axis);
  }
  if (!target) return ndim - 1;
  for (int axis = ndim - 1; axis >= 0; --axis) {
    if (target->shape == without(scores.shape, axis)) return axis;
  }
  return invalid("target ", target->text(), " is not scores ", scores.text(), " without one dimension, the classes");
}

Result<Var> build(LossBuilder& l) {
  const TensorType scores = l.output.type();
  if (l.wanted_target() && !is_integer(l.wanted_target()->dtype)) {
    return unsupported("the target holds class indices, i64 or i32; got ", l.wanted_target()->text(),
                       "; store it as integers (for a table in CSV: the reader's option classes)");
  }
  EPL_ASSIGN(const int axis, class_axis(scores, l.options.ints("axis"), l.wanted_target()));
  Var target = l.target({DType::i64, without(scores.shape, axis)});
  const int64_t ignored = l.options.integer("ignore_index");
  Var sum = l.b.emit("cross_entropy", {l.output, target}, {{"axis", int64_t{axis}}, {"ignore_index", ignored}});
  Var count = l.b.emit("count_valid", {target}, {{"ignore_index", ignored}});
  return sum / l.b.cast(count, sum.dtype());
}

// A softmax over the classes, whose logarithm the loss would take again.
bool ends_in_softmax(const LossBuilder& l, const Node& last) {
  if (last.op->name != "softmax" && last.op->name != "log_softmax") return false;
  const TensorType& scores = l.output.type();
  auto classes = class_axis(scores, l.options.ints("axis"), l.wanted_target());
  const int64_t axis = last.attributes.integer("axis");
  return classes.ok() && *classes == (axis < 0 ? axis + scores.ndim() : axis);
}

}  // namespace

EPL_LOSS(softmax_cross_entropy) {
  return {.doc = "Mean of -log softmax(output)[target] over the positions whose target is not `ignore_index`. Classes lie on the "
                 "dimension that the target lacks, the last one where several fit, or on `axis`.",
          .options = {{"ignore_index", int64_t{-100}}, {"axis", Ints{}}},
          .build = build,
          .takes_operand_of = ends_in_softmax};
}

}  // namespace epl
