// Schedules that reach their end at a step that is known: as transformers' get_linear_schedule_with_warmup and
// get_cosine_schedule_with_warmup, with a floor.
#include "core/train/schedules/common.h"

namespace epl {

EPL_SCHEDULE(linear) {
  return {.doc = "From the base rate in a straight line to `final_ratio` of it at `total_steps`, and so on.",
          .options = {{"total_steps", int64_t{0}}, {"final_ratio", 0.0}},
          .factor = [](const Attributes& o, int64_t step,
                       int64_t warmup) { return schedules::down_to(o, 1 - schedules::progress(o, step, warmup)); },
          .check = schedules::check_decay};
}

EPL_SCHEDULE(cosine) {
  return {.doc = "From the base rate in half a cosine to `final_ratio` of it at `total_steps`, and so on.",
          .options = {{"total_steps", int64_t{0}}, {"final_ratio", 0.0}},
          .factor =
              [](const Attributes& o, int64_t step, int64_t warmup) {
                return schedules::down_to(o, 0.5 * (1 + math::cos(math::pi * schedules::progress(o, step, warmup))));
              },
          .check = schedules::check_decay};
}

}  // namespace epl
