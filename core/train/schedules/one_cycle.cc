#include "core/train/schedules/common.h"

namespace epl {
namespace {

double between(double from, double to, double progress) {
  return to + (from - to) / 2 * (1 + math::cos(math::pi * progress));
}

// The base rate is the highest. Both ways are half a cosine.
double factor(const Attributes& o, int64_t step, int64_t) {
  const double total = static_cast<double>(o.integer("total_steps")), at = static_cast<double>(step);
  const double first = 1 / o.number("div_factor"), last = first / o.number("final_div_factor");
  const double top = o.number("pct_start") * total - 1, end = total - 1;
  if (at <= top) return between(first, 1, top > 0 ? at / top : 1);
  return between(1, last, std::min((at - top) / (end - top), 1.0));
}

Status check(const Attributes& o, int64_t warmup) {
  if (warmup > 0) return invalid("it rises by itself, for the share `pct_start` of the steps; warmup_steps must be 0");
  if (o.integer("total_steps") < 2)
    return invalid("total_steps = ", o.integer("total_steps"), "; it takes two steps at least");
  return {};
}

}  // namespace

EPL_SCHEDULE(one_cycle) {
  return {
      .doc =
          "Up from 1 / `div_factor` of the base rate to the base rate, for the share `pct_start` of `total_steps`, "
          "and down to 1 / "
          "`final_div_factor` of where it began (torch.optim.lr_scheduler.OneCycleLR, cosine, with the base rate "
          "as max_lr).",
      .options =
          {schedules::total_steps(),
           {.name = "pct_start",
            .value = 0.3,
            .doc = "the share of the steps in which the rate rises",
            .range = {.from = 0, .to = 1, .without_to = true}},
           {.name = "div_factor", .value = 25.0, .doc = "the base rate over the first one", .range = at_least(1)},
           {.name = "final_div_factor", .value = 1e4, .doc = "the first rate over the last one", .range = at_least(1)}},
      .factor = factor,
      .check = check};
}

}  // namespace epl
