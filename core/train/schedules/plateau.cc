#include "core/train/schedules/common.h"

namespace epl {

EPL_SCHEDULE(plateau) {
  return {.doc =
              "The base rate, times `factor` whenever the number that is watched has not become better by the share "
              "`threshold` for more "
              "than `patience` measurements; after that `cooldown` measurements do not count; never below `min_ratio` "
              "of the base "
              "rate (torch.optim.lr_scheduler.ReduceLROnPlateau).",
          .options = {{.name = "factor",
                       .value = 0.1,
                       .doc = "what the rate is multiplied with",
                       .range = {.from = 0, .to = 1, .without_from = true, .without_to = true}},
                      {.name = "patience",
                       .value = int64_t{10},
                       .doc = "measurements without a better one before that",
                       .range = at_least(0)},
                      {.name = "threshold",
                       .value = 1e-4,
                       .doc = "the share by which a measurement must be better to count as better",
                       .range = at_least(0)},
                      {.name = "cooldown",
                       .value = int64_t{0},
                       .doc = "measurements after a change that do not count",
                       .range = at_least(0)},
                      {.name = "min_ratio",
                       .value = 0.0,
                       .doc = "the share of the base rate that is always left",
                       .range = {.from = 0, .to = 1}}},
          .factor = [](const Attributes&, int64_t, int64_t) { return 1.0; },
          .watches = true};
}

}  // namespace epl
