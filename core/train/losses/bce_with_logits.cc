// Binary cross-entropy of logits against probabilities (torch.nn.BCEWithLogitsLoss).
#include "core/train/losses/elementwise.h"

namespace epl {

EPL_LOSS(bce_with_logits) {
  return {.doc = "Mean of -(target * log s + (1 - target) * log(1 - s)), s = sigmoid(output), over all elements.",
          .build = [](LossBuilder& l) -> Result<Var> {
            EPL_ASSIGN(Var target, losses::target_like_output(l));
            // softplus(x) - x t: the same, and finite for large logits.
            return losses::mean_of_all(l.b.emit("softplus", {l.output}) - l.output * target);
          },
          .takes_operand_of = [](const LossBuilder&, const Node& last) { return last.op->name == "sigmoid"; }};
}

}  // namespace epl
