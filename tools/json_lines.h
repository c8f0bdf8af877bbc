// The events of a training job as JSON lines on standard output, for programs.
#pragma once

#include <string>

#include "tools/listener.h"

namespace epl::tools {

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
  int64_t units_per_step_ = 0, first_step_ = 0, planned_bytes_ = 0;
};

}  // namespace epl::tools
