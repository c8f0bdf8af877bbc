// Schedules that reach their end at a step that is known: as transformers' get_linear_schedule_with_warmup and
// get_cosine_schedule_with_warmup, with a floor.
#include "core/train/schedules/common.h"

namespace epl {
namespace {

Option final_ratio() {
  return {.name = "final_ratio",
          .value = 0.0,
          .doc = "the share of the base rate that is left in the end",
          .range = at_least(0)};
}

}  // namespace

EPL_SCHEDULE(linear) {
  return {.doc = "From the base rate in a straight line to `final_ratio` of it at `total_steps`, and so on.",
          .options = {schedules::total_steps(), final_ratio()},
          .factor = [](const Attributes& o, int64_t step,
                       int64_t warmup) { return schedules::down_to(o, 1 - schedules::progress(o, step, warmup)); },
          .check = schedules::check_decay};
}

EPL_SCHEDULE(cosine) {
  return {.doc = "From the base rate in half a cosine to `final_ratio` of it at `total_steps`, and so on.",
          .options = {schedules::total_steps(), final_ratio()},
          .factor =
              [](const Attributes& o, int64_t step, int64_t warmup) {
                return schedules::down_to(o, 0.5 * (1 + math::cos(math::pi * schedules::progress(o, step, warmup))));
              },
          .check = schedules::check_decay};
}

}  // namespace epl
