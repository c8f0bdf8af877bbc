// What a job tells of itself, one event at a time.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

namespace epl {

// The values are those of EPL_JOB_... in include/epl.h and never change.
enum class JobEventKind : int32_t { step = 1, measured = 2, saved = 3, warning = 4, done = 5 };
enum class JobEnd : int32_t { running = 0, steps = 1, stopped = 2, patience = 3, cancelled = 4, failed = 5, data = 6 };
inline constexpr const char* job_end_names[] = {"running",   "steps",  "stopped", "patience",
                                                "cancelled", "failed", "data"};

// Numbers as they stand after the event. NaN: there is none yet.
struct JobEvent {
  bool scales() const { return loss_scale != 1 || skipped_steps > 0; }
  JobEventKind kind = JobEventKind::step;
  JobEnd ended = JobEnd::running;
  bool best = false;            // of `measured`: better than all before; of `saved`: its weights are the best
  int64_t step = 0;             // steps done, those of earlier runs included
  int64_t steps = 0;            // that are wanted in all; 0: until the data ends
  double epoch = std::nan("");  // times through the data
  int64_t samples = 0;          // seen, those of earlier runs included; of `measured`: that were measured
  double loss = std::nan(""), learning_rate = 0, gradient_norm = -1;  // of the last step
  double loss_scale = 1;      // behind the last step: what gradients are multiplied with on their way
  int64_t skipped_steps = 0;  // that have overflowed and changed nothing, in all
  double held_out_loss = std::nan(""), monitored = std::nan("");  // as measured last
  double best_value = std::nan("");                               // of the monitored number
  int64_t best_step = -1;
  double seconds = 0;  // of training, earlier runs included
  double seconds_left = std::nan(""), samples_per_second = std::nan("");
  int64_t memory_bytes = 0;  // that a rank has used at its fullest
  std::string text;          // the path that was saved to, the warning, why the job has ended, or the metrics as JSON
};

}  // namespace epl
