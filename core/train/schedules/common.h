// What the rows of schedules share.
#pragma once

#include <algorithm>

#include "core/base/math.h"
#include "core/train/schedule.h"

namespace epl::schedules {

// The option of schedules that end at a step.
inline Option total_steps() {
  return {.name = "total_steps",
          .value = int64_t{0},
          .doc = "the step at which it has come to its end",
          .range = at_least(0)};
}

inline Status check_decay(const Attributes& options, int64_t warmup) {
  const int64_t total = options.integer("total_steps");
  if (total <= warmup) return invalid("total_steps = ", total, " must be more than warmup_steps = ", warmup);
  return {};
}

// How much of the way from the warm-up's end to total_steps is done.
inline double progress(const Attributes& options, int64_t step, int64_t warmup) {
  const double length = static_cast<double>(std::max<int64_t>(options.integer("total_steps") - warmup, 1));
  return std::min(static_cast<double>(step) / length, 1.0);
}

inline double down_to(const Attributes& options, double shape) {
  const double final_ratio = options.number("final_ratio");
  return final_ratio + (1 - final_ratio) * shape;
}

}  // namespace epl::schedules
