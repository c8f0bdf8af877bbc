#include "core/train/schedule.h"

#include <algorithm>
#include <cmath>

#include "core/base/options.h"

namespace epl {

Result<Schedule> make_schedule(const LearningRateSchedule& wanted) {
  Schedule made;
  EPL_ASSIGN(made.row, find_schedule(wanted.name));
  made.warmup_steps = wanted.warmup_steps;
  EPL_ASSIGN(made.options, complete_options(made.row->options, wanted.options, cat("schedule ", wanted.name)));
  if (made.row->check) {
    Status fine = made.row->check(made.options, made.warmup_steps);
    if (!fine.ok()) return fine.with_context(cat("schedule ", wanted.name));
  }
  return made;
}

double Schedule::factor(int64_t step) const {
  if (step < warmup_steps) return static_cast<double>(step) / static_cast<double>(warmup_steps);
  return row->factor(options, step - warmup_steps, warmup_steps);
}

void RateScale::observe(const Attributes& options, double value, bool higher_is_better) {
  const double threshold = options.number("threshold");
  const bool better = !measured || (higher_is_better ? value > best * (1 + threshold) : value < best * (1 - threshold));
  if (better && !std::isnan(value)) {
    best = value;
    measured = true;
    bad = 0;
  } else {
    ++bad;
  }
  if (cooldown > 0) {
    --cooldown;
    bad = 0;
  }
  if (bad <= options.integer("patience")) return;
  scale = std::max(scale * options.number("factor"), std::min(scale, options.number("min_ratio")));
  cooldown = options.integer("cooldown");
  bad = 0;
}

}  // namespace epl
