#include <algorithm>

#include "core/base/math.h"
#include "core/train/train_step.h"

namespace epl {

// As transformers' get_linear_schedule_with_warmup and get_cosine_schedule_with_warmup, with a floor.
double LearningRateSchedule::factor(int64_t step) const {
  if (step < warmup_steps) return static_cast<double>(step) / static_cast<double>(warmup_steps);
  if (kind == Kind::constant) return 1;
  const double length = static_cast<double>(std::max<int64_t>(total_steps - warmup_steps, 1));
  const double progress = std::min(static_cast<double>(step - warmup_steps) / length, 1.0);
  const double shape = kind == Kind::linear ? 1 - progress : 0.5 * (1 + math::cos(math::pi * progress));
  return final_ratio + (1 - final_ratio) * shape;
}

Status LearningRateSchedule::check() const {
  if (warmup_steps < 0) return invalid("schedule: warmup_steps = ", warmup_steps, " is negative");
  if (kind == Kind::constant) return {};
  if (total_steps <= warmup_steps) {
    return invalid("schedule: total_steps = ", total_steps, " must be more than warmup_steps = ", warmup_steps);
  }
  if (!(final_ratio >= 0)) return invalid("schedule: final_ratio = ", final_ratio, " is negative");
  return {};
}

}  // namespace epl
