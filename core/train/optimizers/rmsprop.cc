#include "core/train/optimizers/common.h"

namespace epl {

EPL_OPTIMIZER(rmsprop) {
  return {.doc =
              "RMSprop as torch.optim.RMSprop (Hinton's lecture, 2012), not centred and without momentum; weight_decay "
              "is added to "
              "the gradient (L2).",
          .options = {optimizers::lr_option(1e-2),
                      {.name = "alpha", .value = 0.99, .doc = "how much of the mean of squares a step keeps"},
                      optimizers::eps_option(1e-8),
                      optimizers::weight_decay_option(0)},
          .states = {"square"},
          .op = "rmsprop",
          .scalars = {{"lr", optimizers::learning_rate}},
          .attributes = [](const Attributes& options) -> Result<Attributes> {
            EPL_ASSIGN(double alpha, optimizers::number_in(options, "alpha", 0, 1));
            EPL_ASSIGN(double epsilon, optimizers::number_in(options, "eps", 0));
            EPL_ASSIGN(double weight_decay, optimizers::number_in(options, "weight_decay", 0));
            return Attributes{{"alpha", alpha}, {"epsilon", epsilon}, {"weight_decay", weight_decay}};
          }};
}

}  // namespace epl
