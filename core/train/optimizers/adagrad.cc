#include "core/train/optimizers/common.h"

namespace epl {
namespace {

double decaying_rate(const Attributes& options, double lr, int64_t step) {
  return lr / (1 + static_cast<double>(step) * options.number("lr_decay"));
}

Result<Attributes> adagrad_attributes(const Attributes& options) {
  return Attributes{{"epsilon", options.number("eps")}, {"weight_decay", options.number("weight_decay")}};
}

}  // namespace

EPL_OPTIMIZER(adagrad) {
  return {.doc =
              "Adagrad as torch.optim.Adagrad (Duchi, Hazan and Singer 2011), its sums from zero; weight_decay is "
              "added to the "
              "gradient (L2).",
          .options = {optimizers::lr_option(1e-2),
                      {.name = "lr_decay",
                       .value = 0.0,
                       .doc = "step k has the rate lr / (1 + k * lr_decay)",
                       .range = at_least(0)},
                      optimizers::weight_decay_option(0),
                      optimizers::eps_option(1e-10),
                      optimizers::state_type_option()},
          .states = {"sum"},
          .op = "adagrad",
          .scalars = {{"rate", decaying_rate}},
          .attributes = adagrad_attributes};
}

}  // namespace epl
