// Binary cross-entropy of logits against probabilities (torch.nn.BCEWithLogitsLoss).
#include "core/train/losses/elementwise.h"

namespace epl {
namespace {

// One factor for all, or one for each of the last dimension.
Result<Var> factors(LossBuilder& l, const Doubles& values) {
  const int64_t count = static_cast<int64_t>(values.size()), last = l.output.ndim() > 0 ? l.output.dim(-1) : 1;
  if (count == 1) return l.b.like(l.output, values[0]);
  if (count != last)
    return invalid("option pos_weight holds ", count, " numbers; the output ", l.output.type().text(), " has ", last,
                   " columns");
  Tensor data({l.output.dtype(), {count}});
  for (int64_t i = 0; i < count; ++i) data.set(i, values[static_cast<size_t>(i)]);
  return l.b.constant(std::move(data));
}

Result<Loss> build(LossBuilder& l) {
  EPL_ASSIGN(Var target, losses::target_like_output(l));
  const Doubles& pos_weight = std::get<Doubles>(*l.options.find("pos_weight"));
  // softplus(x) - x t: the same, and finite for large logits.
  if (pos_weight.empty()) return Loss{.terms = l.b.emit("softplus", {l.output}) - l.output * target};
  EPL_ASSIGN(Var weight, factors(l, pos_weight));
  // (1 - t) x + (1 + (w - 1) t) softplus(-x).
  return Loss{.terms = (1 - target) * l.output + ((weight - 1) * target + 1) * l.b.emit("softplus", {-l.output})};
}

}  // namespace

EPL_LOSS(bce_with_logits) {
  return {
      .doc =
          "Mean of -(pos_weight * target * log s + (1 - target) * log(1 - s)), s = sigmoid(output), over all "
          "elements; `pos_weight` "
          "is one number or one for each of the last dimension (none: 1).",
      .options = {{.name = "pos_weight",
                   .value = Doubles{},
                   .doc = "what a positive target counts: one number, or one for each of the last dimension; none: 1",
                   .range = at_least(0)}},
      .task = Task::probabilities,
      .metrics = "accuracy, f1",
      .build = build,
      .takes_operand_of = [](const LossBuilder&, const Node& last, int) { return last.op->name == "sigmoid"; }};
}

}  // namespace epl
