// Losses inside a model: the negative log likelihood of classes, with or without the softmax before it.
#include <limits>

#include "core/ir/op.h"
#include "core/ir/sums.h"
#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {
namespace {

constexpr int64_t ignores_nothing = std::numeric_limits<int64_t>::min();

// Losses of positions from log probabilities [n, c, d...]: weighted, zero where the target is ignored.
struct Likelihoods {
  Var losses, weights;  // [n, d...]
};
Likelihoods likelihoods(Import& i, const Var& logs, const Var& target, int64_t ignored) {
  Builder& b = i.b;
  Var classes = b.cast(target, DType::i64), valid;
  if (ignored != ignores_nothing) {
    valid = b.emit("not_equal", {classes, b.scalar(DType::i64, static_cast<double>(ignored))});
    classes = b.select(valid, classes, b.scalar(DType::i64, 0));
  }
  Shape column = classes.shape();
  column.insert(column.begin() + 1, 1);
  Var gathered =
      b.reshape(b.emit("gather_elements", {logs, b.reshape(classes, column)}, {{"axis", int64_t{1}}}), classes.shape());
  Likelihoods out;
  out.weights = i.has(2) ? b.emit("gather", {b.cast(i.in(2), logs.dtype()), classes}, {{"axis", int64_t{0}}})
                         : b.broadcast_to(b.scalar(logs.dtype(), 1), classes.shape());
  if (valid) out.weights = b.select(valid, out.weights, b.like(out.weights, 0));
  // What counts nothing is selected away: 0 times the logarithm of a class without a chance would be NaN.
  const Var zero = b.like(gathered, 0);
  const Var counted = i.has(2) || valid ? b.select(b.equal(out.weights, zero), zero, gathered) : gathered;
  out.losses = -counted * out.weights;
  return out;
}

Ints every_axis(const Var& x) {
  Ints axes;
  for (int d = 0; d < x.ndim(); ++d) axes.push_back(d);
  return axes;
}

void reduce_loss(Import& i, const Likelihoods& l) {
  std::string reduction = i.choice("reduction", {"mean", "sum", "none"});
  const DType as = i.type(0).dtype;
  if (reduction == "none") return i.set(0, i.b.cast(l.losses, as));
  Var total = i.b.sum(l.losses, every_axis(l.losses), false);
  if (reduction == "sum") return i.set(0, i.b.cast(total, as));
  const Var count = i.b.sum(l.weights, every_axis(l.weights), false);
  i.set(0, i.b.cast(i.b.emit("counted_mean", {total, count}), as));
}

int64_t ignored_class(Import& i) {
  return i.has_attribute("ignore_index") ? i.integer("ignore_index", 0) : ignores_nothing;
}

bool fits(Import& i) {
  const TensorType &x = i.type(0), &target = i.type(1);
  if (x.ndim() >= 2 && target.ndim() == x.ndim() - 1 && is_integer(target.dtype)) return true;
  i.fail(cat("scores ", x.text(), " and targets ", target.text(), " do not fit"));
  return false;
}

}  // namespace

// Weights of classes are settings: no loss has a gradient of them.
EPL_ONNX_OP(NegativeLogLikelihoodLoss) {
  return {.structural = {2}, .run = [](Import& i) {
            if (!fits(i)) return;
            const Var logs = i.b.cast(i.in(0), type_of_sums(i.type(0).dtype));
            reduce_loss(i, likelihoods(i, logs, i.in(1), ignored_class(i)));
          }};
}

// The usual case is the op whose gradient needs no probabilities kept.
EPL_ONNX_OP(SoftmaxCrossEntropyLoss) {
  return {.structural = {2}, .run = [](Import& i) {
            if (!fits(i)) return;
            Builder& b = i.b;
            const DType as = i.type(0).dtype;
            Var scores = b.cast(i.in(0), type_of_sums(as)), target = i.in(1);
            std::string reduction = i.choice("reduction", {"mean", "sum", "none"});
            if (i.wants(1)) i.set(1, b.cast(b.emit("log_softmax", {scores}, {{"axis", int64_t{1}}}), as));
            if (i.has(2) || reduction == "none" || i.wants(1)) {
              Var logs = b.emit("log_softmax", {scores}, {{"axis", int64_t{1}}});
              return reduce_loss(i, likelihoods(i, logs, target, ignored_class(i)));
            }
            int64_t ignored = i.has_attribute("ignore_index") ? i.integer("ignore_index", 0) : int64_t{-100};
            Var sum =
                b.emit_all("cross_entropy", {scores, target}, {{"axis", int64_t{1}}, {"ignore_index", ignored}})[0];
            if (reduction == "mean") {
              const Var count = b.cast(b.emit("count_valid", {target}, {{"ignore_index", ignored}}), sum.dtype());
              sum = b.emit("counted_mean", {sum, count});
            }
            i.set(0, b.cast(sum, as));
          }};
}

}  // namespace epl::onnx
