#include "core/train/optimizers/common.h"

namespace epl {

EPL_OPTIMIZER(rmsprop) {
  return {.doc =
              "RMSprop as torch.optim.RMSprop (Hinton's lecture, 2012), not centred and without momentum; weight_decay "
              "is added to "
              "the gradient (L2).",
          .options = {optimizers::lr_option(1e-2),
                      {.name = "alpha",
                       .value = 0.99,
                       .doc = "how much of the mean of squares a step keeps",
                       .range = {.from = 0, .to = 1, .without_to = true}},
                      optimizers::eps_option(1e-8),
                      optimizers::weight_decay_option(0),
                      optimizers::state_type_option()},
          .states = {"square"},
          .op = "rmsprop",
          .scalars = {{"lr", optimizers::learning_rate}},
          .attributes = [](const Attributes& options) -> Result<Attributes> {
            return Attributes{{"alpha", options.number("alpha")},
                              {"epsilon", options.number("eps")},
                              {"weight_decay", options.number("weight_decay")}};
          }};
}

}  // namespace epl
