#include "tools/history.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "tools/json_lines.h"

namespace epl::tools {

void read_history(const std::string& path, int64_t last_step, JobStart& start) {
  std::ifstream in(path, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const Json event = try_parse_json(line);
    if (text_at(event, "event") == "held_out") start.earlier_held_out = event;
    if (!event.is_object() || !event.contains("step") || !event["step"].is_number_integer() ||
        event["step"].get<int64_t>() > last_step)
      continue;
    StepDone step;
    Evaluated evaluated;
    if (read_event(event, step)) start.earlier_steps.push_back(step);
    if (read_event(event, evaluated)) start.earlier_evaluations.push_back(evaluated);
  }
}

// Written with the first events of this run: until then an older file stays, as its checkpoints do.
void History::start(const JobStart& e) {
  every_ = std::max<int64_t>(1, e.steps / 1000);
  for (const StepDone& one : e.earlier_steps) pending_ += print_json(event_of(one)) + "\n";
  for (const Evaluated& one : e.earlier_evaluations) pending_ += print_json(event_of(one)) + "\n";
}

void History::step(const StepDone& e) {
  if (e.step <= 1000 || e.step % every_ == 0) pending_ += print_json(event_of(e)) + "\n";
}

void History::evaluated(const Evaluated& e) { pending_ += print_json(event_of(e)) + "\n"; }

void History::notice(const Json& event, const std::string&) {
  if (text_at(event, "event") == "held_out") pending_ += print_json(event) + "\n";
}

// Losing it must not end a run: it is only for a curve.
void History::flush() {
  if (failed_ || pending_.empty()) return;
  std::ofstream out(path_, std::ios::binary | (begun_ ? std::ios::app : std::ios::trunc));
  errno = 0;
  out << pending_;
  out.close();
  failed_ = !out;
  if (failed_)
    log_.add(path_ + ": " + (errno != 0 ? std::strerror(errno) : "cannot be written") +
             "; it is not written any further");
  begun_ = true;
  pending_.clear();
}

}  // namespace epl::tools
