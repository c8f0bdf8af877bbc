// The events of a training job as JSON lines on standard output, for programs.
#pragma once

#include <string>

#include "tools/listener.h"

namespace epl::tools {

// The numbers of an event as JSON, and back; false for an event of another kind.
Json event_of(const StepDone& e);
Json event_of(const Evaluated& e);
bool read_event(const Json& event, StepDone& e);
bool read_event(const Json& event, Evaluated& e);

class JsonLines : public Listener {
 public:
  void start(const JobStart& e) override;
  void step(const StepDone& e) override;
  void evaluated(const Evaluated& e) override;
  void saved(const CheckpointSaved& e) override;
  void notice(const Json& event, const std::string& line) override;
  void warning(const std::string& message) override;
  void done(const JobDone& e) override;

 private:
  std::string rate_name_;
  double earlier_seconds_ = 0;
  int64_t units_per_step_ = 0, first_step_ = 0, planned_bytes_ = 0;
};

}  // namespace epl::tools
