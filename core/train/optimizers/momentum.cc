#include "core/train/optimizers/common.h"

namespace epl {
namespace {

// The first gradient enters the buffer undamped, later ones damped.
double gradient_share(const Attributes& options, double, int64_t step) {
  return step == 0 ? 1 : 1 - options.number("dampening");
}

Result<Attributes> momentum_attributes(const Attributes& options) {
  const double momentum = options.number("momentum");
  const bool nesterov = options.flag("nesterov");
  if (nesterov && (momentum == 0 || options.number("dampening") != 0)) {
    return invalid("option nesterov needs a momentum and no dampening");
  }
  return Attributes{{"momentum", momentum}, {"nesterov", nesterov}, {"weight_decay", options.number("weight_decay")}};
}

}  // namespace

EPL_OPTIMIZER(momentum) {
  return {.doc =
              "Gradient descent with momentum as torch.optim.SGD, on request Nesterov's; weight_decay is added to the "
              "gradient "
              "(L2).",
          .options = {optimizers::lr_option(1e-3),
                      {.name = "momentum",
                       .value = 0.9,
                       .doc = "share of the last step that the next one keeps",
                       .range = at_least(0)},
                      {.name = "dampening", .value = 0.0, .doc = "share of the gradient that is left out of it"},
                      {.name = "nesterov", .value = false, .doc = "Nesterov's momentum"},
                      optimizers::weight_decay_option(0),
                      optimizers::state_type_option()},
          .states = {"momentum"},
          .op = "momentum",
          .scalars = {{"lr", optimizers::learning_rate}, {"gradient_share", gradient_share}},
          .attributes = momentum_attributes};
}

}  // namespace epl
