// Schedules that multiply by the same number again and again.
#include "core/train/schedules/common.h"

namespace epl {
namespace {

Option gamma(double value, bool required) {
  return {.name = "gamma",
          .value = value,
          .required = required,
          .doc = "what the rate is multiplied with",
          .range = {.from = 0, .to = 1, .without_from = true}};
}

}  // namespace

EPL_SCHEDULE(step) {
  return {.doc = "The base rate times `gamma` for every `step_size` steps (torch.optim.lr_scheduler.StepLR).",
          .options = {{.name = "step_size",
                       .value = int64_t{0},
                       .required = true,
                       .doc = "steps between two changes",
                       .range = at_least(1)},
                      gamma(0.1, false)},
          .factor = [](const Attributes& o, int64_t step, int64_t) {
            return math::power(o.number("gamma"), step / o.integer("step_size"));
          }};
}

EPL_SCHEDULE(exponential) {
  return {.doc = "The base rate times `gamma` for every step (torch.optim.lr_scheduler.ExponentialLR).",
          .options = {gamma(0.999, true)},
          .factor = [](const Attributes& o, int64_t step, int64_t) { return math::power(o.number("gamma"), step); }};
}

}  // namespace epl
