// Mean squared error (torch.nn.MSELoss).
#include "core/train/losses/elementwise.h"

namespace epl {

EPL_LOSS(mse) {
  return {.doc = "Mean of (output - target)^2 over all elements.",
          .task = Task::numbers,
          .metrics = "mae, r2",
          .build = [](LossBuilder& l) -> Result<Loss> {
            EPL_ASSIGN(Var target, losses::target_like_output(l));
            Var difference = l.output - target;
            return Loss{.terms = difference * difference};
          }};
}

}  // namespace epl
