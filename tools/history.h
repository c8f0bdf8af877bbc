// What a run has measured, kept in OUT/history.jsonl beside its checkpoints, so that a run that goes on knows of all of
// it.
//
// A line an event, as --json prints them: "step", "evaluation" and "held_out", what the latter was measured on. Of a
// long run the first thousand steps are kept and then about every thousandth part, so that the file stays small.
#pragma once

#include <string>

#include "tools/host_log.h"
#include "tools/listener.h"

namespace epl::tools {

// The events of a file up to a step; empty where there is none. A line that cannot be read is left out.
void read_history(const std::string& path, int64_t last_step, JobStart& start);

class History : public Listener {
 public:
  // A new run starts a new file; a resumed run cuts off what lies after its first step. If the file cannot be written,
  // `log` gets one warning.
  History(std::string path, HostLog& log) : path_(std::move(path)), log_(log) {}
  void start(const JobStart& e) override;
  void step(const StepDone& e) override;
  void evaluated(const Evaluated& e) override;
  void notice(const Json& event, const std::string& line) override;
  void saved(const CheckpointSaved&) override { flush(); }
  void done(const JobDone&) override { flush(); }

 private:
  void flush();
  std::string path_, pending_;
  HostLog& log_;
  int64_t every_ = 1;
  bool begun_ = false, failed_ = false;
};

}  // namespace epl::tools
