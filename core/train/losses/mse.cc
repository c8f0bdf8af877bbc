// Mean squared error (torch.nn.MSELoss).
#include "core/train/losses/elementwise.h"

namespace epl {

EPL_LOSS(mse) {
  return {.doc = "Mean of (output - target)^2 over all elements.",
          .build = [](LossBuilder& l) -> Result<Var> {
            EPL_ASSIGN(Var target, losses::target_like_output(l));
            Var difference = l.output - target;
            return losses::mean_of_all(difference * difference);
          }};
}

}  // namespace epl
