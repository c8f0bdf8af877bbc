#include "core/train/optimizers/common.h"

namespace epl {

EPL_OPTIMIZER(sgd) {
  return {.doc = "Gradient descent as torch.optim.SGD without momentum; weight_decay is added to the gradient (L2).",
          .options = {optimizers::lr_option(1e-3), optimizers::weight_decay_option(0)},
          .op = "sgd",
          .scalars = {{"lr", optimizers::learning_rate}},
          .attributes = [](const Attributes& options) -> Result<Attributes> {
            return Attributes{{"weight_decay", options.number("weight_decay")}};
          }};
}

}  // namespace epl
