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
      return invalid("scores ", scores.text(), " with classes on dimension ", axis, " do not fit target ",
                     target->text());
    }
    return static_cast<int>(axis);
  }
  if (!target) return ndim - 1;
  for (int axis = ndim - 1; axis >= 0; --axis) {
    if (target->shape == without(scores.shape, axis)) return axis;
  }
  return invalid("target ", target->text(), " is not scores ", scores.text(), " without one dimension, the classes");
}

// Whether a position counts, as bool.
Var counted(Builder& b, const Var& target, int64_t ignored) {
  Tensor value({target.dtype(), {}});
  value.set_int(0, ignored);
  return b.emit("not_equal", {target, b.constant(std::move(value))});
}

// x at the target's class; where a position does not count, at class 0.
Var score_of_target(Builder& b, const Var& x, const Var& target, const Var& counts, int64_t axis) {
  Shape one = x.shape();
  if (one.empty()) return {};  // after an error
  one[static_cast<size_t>(axis)] = 1;
  const Var index = b.reshape(b.select(counts, target, b.like(target, 0)), one);
  return b.reshape(b.emit("gather_elements", {x, index}, {{"axis", axis}}), target.shape());
}

struct Options {
  int64_t axis, ignored;
  double smoothing;
  Doubles class_weights;
};

Result<Options> read_options(const LossBuilder& l, int axis) {
  Options o{axis, l.options.integer("ignore_index"), l.options.number("label_smoothing"),
            std::get<Doubles>(*l.options.find("class_weights"))};
  const int64_t classes = l.output.dim(axis), given = static_cast<int64_t>(o.class_weights.size());
  if (given > 0 && given != classes)
    return invalid("option class_weights holds ", given, " numbers; there are ", classes, " classes");
  return o;
}

// The sum by one op; its terms, for evaluation, are lse - logit of the target's class.
Loss plain(LossBuilder& l, const Var& target, const Options& o) {
  Builder& b = l.b;
  l.facts.log_loss = true;
  const std::vector<Var> sum =
      b.emit_all("cross_entropy", {l.output, target}, {{"axis", o.axis}, {"ignore_index", o.ignored}});
  Var count = b.emit("count_valid", {target}, {{"ignore_index", o.ignored}});
  if (sum.size() < 2 || !sum[1]) return {};  // the builder knows why
  Loss loss{.value = b.emit("counted_mean", {sum[0], b.cast(count, sum[0].dtype())})};
  if (l.measures) {
    const Var counts = counted(b, target, o.ignored);
    loss.terms = b.select(counts, sum[1] - b.cast(score_of_target(b, l.output, target, counts, o.axis), sum[1].dtype()),
                          b.like(sum[1], 0));
    loss.weights = b.cast(counts, sum[1].dtype());
  }
  return loss;
}

// PyTorch's meaning of both options: with weights w, smoothing e and log-probabilities p of C classes, a position of
// target t adds -(1 - e) w_t p_t - e/C sum_k w_k p_k and counts w_t.
Loss weighted(LossBuilder& l, const Var& target, const Options& o) {
  Builder& b = l.b;
  const Var counts = counted(b, target, o.ignored);
  const DType type = l.output.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Var logits = b.cast(l.output, type), log_p = b.emit("log_softmax", {logits}, {{"axis", o.axis}});
  const Var zero = b.scalar(type, 0);
  const int64_t classes = l.output.dim(static_cast<int>(o.axis));
  Tensor table({type, {classes}});
  for (int64_t k = 0; k < classes; ++k)
    table.set(k, o.class_weights.empty() ? 1.0 : o.class_weights[static_cast<size_t>(k)]);
  const Var weights = b.constant(std::move(table));
  const Var index = b.select(counts, target, b.like(target, 0));
  const Var own = b.select(counts, b.emit("gather", {weights, index}, {{"axis", int64_t{0}}}), zero);
  // What counts nothing is selected away: 0 times the logarithm of a class without a chance would be NaN.
  const Var p = b.select(b.equal(own, zero), zero, score_of_target(b, log_p, target, counts, o.axis));
  Var terms = (o.smoothing - 1) * (own * p);
  if (o.smoothing > 0) {
    Shape along(static_cast<size_t>(l.output.ndim()), 1);
    along[static_cast<size_t>(o.axis)] = classes;
    const Var share = b.reshape(weights, along);
    const Var each = b.select(b.equal(share, zero), zero, log_p) * share;
    terms = terms - (o.smoothing / static_cast<double>(classes)) * b.select(counts, b.sum(each, {o.axis}, false), zero);
  }
  if (o.smoothing == 0 || o.class_weights.empty()) return {.terms = terms, .weights = own};
  // Smoothing spreads a share of a class of weight 0 over the others, so that there may be a sum where nothing counts.
  Ints axes;
  for (int i = 0; i < terms.ndim(); ++i) axes.push_back(i);
  const auto over_batch = [&](const Var& x) { return axes.empty() ? x : b.sum(x, axes, false); };
  const Var count = over_batch(own);
  const Var total = b.select(b.equal(count, zero), zero, over_batch(terms));
  return {.value = b.emit("counted_mean", {total, count}), .terms = terms, .weights = own};
}

Result<Loss> build(LossBuilder& l) {
  const TensorType scores = l.output.type();
  if (l.wanted_target() && !is_integer(l.wanted_target()->dtype)) {
    return unsupported("the target holds class indices, i64 or i32; got ", l.wanted_target()->text(),
                       "; store it as integers (for a table in CSV: the reader's option classes)");
  }
  EPL_ASSIGN(const int axis, class_axis(scores, l.options.ints("axis"), l.wanted_target()));
  EPL_ASSIGN(const Options options, read_options(l, axis));
  l.facts.class_axis = axis;
  l.facts.classes = scores.shape[static_cast<size_t>(axis)];
  l.facts.ignored = options.ignored;
  Var target = l.target({DType::i64, without(scores.shape, axis)});
  return options.smoothing == 0 && options.class_weights.empty() ? plain(l, target, options)
                                                                 : weighted(l, target, options);
}

// A softmax over the classes, whose logarithm the loss would take again.
bool ends_in_softmax(const LossBuilder& l, const Node& last, int axis) {
  if (last.op->name != "softmax" && last.op->name != "log_softmax") return false;
  const TensorType& scores = l.output.type();
  auto classes = class_axis(scores, l.options.ints("axis"), l.wanted_target());
  return classes.ok() && *classes == axis;
}

}  // namespace

EPL_LOSS(softmax_cross_entropy) {
  return {
      .doc =
          "Mean of -log softmax(output)[target] over the positions whose target is not `ignore_index`. Classes lie "
          "on the "
          "dimension that the target lacks, the last one where several fit, or on `axis`. `label_smoothing` "
          "spreads that share of "
          "each target over all classes; with `class_weights`, one for each class, the mean is weighted by the "
          "targets' weights "
          "(torch.nn.CrossEntropyLoss).",
      .options = {{.name = "ignore_index", .value = int64_t{-100}, .doc = "positions with this target do not count"},
                  {.name = "axis",
                   .value = Ints{},
                   .doc = "the dimension of classes; none: the one that the target lacks"},
                  {.name = "label_smoothing",
                   .value = 0.0,
                   .doc = "the share of the target that is spread evenly over all classes",
                   .range = {.from = 0, .to = 1}},
                  {.name = "class_weights",
                   .value = Doubles{},
                   .doc = "what a class counts, one for each; none: 1",
                   .range = at_least(0)}},
      .task = Task::classes,
      .metrics = "accuracy",
      .build = build,
      .takes_operand_of = ends_in_softmax};
}

}  // namespace epl
