// What a person, or a program, sees of a running job: a bar on a terminal, a line now and then elsewhere, JSON lines on
// request.
#pragma once

#include <chrono>
#include <string>

#include "tools/job.h"

namespace epl::tools {

class Progress {
 public:
  Progress(int64_t steps, bool json, int64_t planned_bytes);
  ~Progress();
  // After a step; `units` were done in it (tokens, samples).
  void step(int64_t step, double loss, int64_t units, int64_t used_bytes);
  void held_out(double loss) { held_out_ = loss; }
  // An event for --json, a line for people.
  void event(const Json& json, const std::string& line);
  const char* unit = "samples";
  double seconds() const;

 private:
  void clear();
  std::string bar(int64_t step, double loss, int64_t used_bytes) const;
  std::string time_left(int64_t step) const;

  int64_t steps_;
  bool json_, terminal_;
  int64_t planned_bytes_;
  int64_t first_step_ = -1, units_ = 0;
  double held_out_ = -1, smooth_loss_ = -1, last_shown_ = -1;
  bool shown_ = false;
  std::chrono::steady_clock::time_point start_;
};

// "1:02:03" or "4:05".
std::string clock_text(double seconds);
// "12.3k" and the like.
std::string short_number(double value);
std::string fixed(double value, int digits);

}  // namespace epl::tools
