// Schedules of the learning rate: rows that say by which factor the base rate is multiplied at a step.
#pragma once

#include <string>
#include <vector>

#include "core/ir/op.h"

namespace epl {

struct ScheduleRow {
  std::string name;
  std::string doc;
  std::vector<Option> options;
  // `step` counts from the end of the warm-up of `warmup` steps; counts of steps in options are of all of the run.
  double (*factor)(const Attributes& options, int64_t step, int64_t warmup) = nullptr;
  Status (*check)(const Attributes& options, int64_t warmup) = nullptr;  // what is wrong with the options
  bool watches = false;                                                  // it follows a measured number (plateau)
};
using ScheduleTable = TableOf<ScheduleRow>;
const ScheduleTable& schedule_table();  // generated
inline Result<const ScheduleRow*> find_schedule(std::string_view name) {
  return find_named(schedule_table(), name, "schedule");
}

// As a host asks for it.
struct LearningRateSchedule {
  std::string name = "constant";
  int64_t warmup_steps = 0;  // in which the rate rises from zero
  Attributes options;
};

// The same, checked and with its defaults.
struct Schedule {
  const ScheduleRow* row = nullptr;
  int64_t warmup_steps = 0;
  Attributes options;
  // The factor on the base rate at a step counted from 0.
  double factor(int64_t step) const;
};
Result<Schedule> make_schedule(const LearningRateSchedule& wanted);

// A second factor of the rate: set by the host, and lowered by a schedule that watches (torch.optim's
// ReduceLROnPlateau, threshold_mode "rel"). A part of a session's state.
struct RateScale {
  double scale = 1;
  bool measured = false;  // `best` is one
  double best = 0;
  int64_t bad = 0;       // measurements since the best
  int64_t cooldown = 0;  // that are not counted any more
  // A number was measured; `options` are those of the schedule that watches it.
  void observe(const Attributes& options, double value, bool higher_is_better);
};

#define EPL_SCHEDULE(row_name) EPL_ROW(EPL_SCHEDULE, row_name, ::epl::ScheduleTable, ::epl::ScheduleRow)

}  // namespace epl
