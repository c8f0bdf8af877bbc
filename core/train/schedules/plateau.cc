#include "core/train/schedules/common.h"

namespace epl {

EPL_SCHEDULE(plateau) {
  return {
      .doc =
          "The base rate, times `factor` whenever the number that is watched has not become better by the share "
          "`threshold` for more "
          "than `patience` measurements; after that `cooldown` measurements do not count; never below `min_ratio` "
          "of the base "
          "rate (torch.optim.lr_scheduler.ReduceLROnPlateau).",
      .options = {{.name = "factor", .value = 0.1, .doc = "what the rate is multiplied with"},
                  {.name = "patience", .value = int64_t{10}, .doc = "measurements without a better one before that"},
                  {.name = "threshold",
                   .value = 1e-4,
                   .doc = "the share by which a measurement must be better to count as better"},
                  {.name = "cooldown", .value = int64_t{0}, .doc = "measurements after a change that do not count"},
                  {.name = "min_ratio", .value = 0.0, .doc = "the share of the base rate that is always left"}},
      .factor = [](const Attributes&, int64_t, int64_t) { return 1.0; },
      .check = [](const Attributes& o, int64_t) -> Status {
        const double factor = o.number("factor"), floor = o.number("min_ratio");
        if (!(factor > 0 && factor < 1)) return invalid("factor = ", factor, " is not between 0 and 1");
        if (o.integer("patience") < 0 || o.integer("cooldown") < 0)
          return invalid("patience and cooldown are counts, 0 or more");
        if (!(o.number("threshold") >= 0)) return invalid("threshold = ", o.number("threshold"), " is negative");
        if (!(floor >= 0 && floor <= 1)) return invalid("min_ratio = ", floor, " is not in [0, 1]");
        return {};
      },
      .watches = true};
}

}  // namespace epl
