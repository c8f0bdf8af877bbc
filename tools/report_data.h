// Keeps what the report shows of a job, and makes the page's data of it.
#pragma once

#include "tools/listener.h"
#include "tools/report.h"

namespace epl::tools {

class ReportData : public Listener {
 public:
  void start(const JobStart& e) override { job_ = e; }
  void step(const StepDone& e) override { steps_.push_back(e); }
  void evaluated(const Evaluated& e) override { evaluations_.push_back(e); }
  void notice(const Json& event, const std::string& line) override;
  void done(const JobDone& e) override { end_ = e; }
  // `memory` is the plan's description of that name; `facts` are further rows of the table.
  Report report(const Json& memory, const std::vector<std::pair<std::string, std::string>>& facts) const;

 private:
  JobStart job_;
  JobDone end_;
  std::vector<StepDone> steps_;
  std::vector<Evaluated> evaluations_;
  std::vector<Level> levels_;
};

}  // namespace epl::tools
