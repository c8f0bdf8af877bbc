// Keeps what the report shows of a job, and makes the page's data of it.
#pragma once

#include "tools/job.h"
#include "tools/listener.h"
#include "tools/report.h"

namespace epl::tools {

class ReportData : public Listener {
 public:
  void start(const JobStart& e) override;
  void step(const StepDone& e) override { steps_.push_back(e); }
  void evaluated(const Evaluated& e) override { evaluations_.push_back(e); }
  void notice(const Json& event, const std::string& line) override;
  void done(const JobDone& e) override { end_ = e; }
  // For render_report. `memory` is the plan's description of that name; `facts` say what is needed to run the job
  // again.
  Json report(const Json& memory, const std::vector<std::pair<std::string, std::string>>& facts) const;

 private:
  Json cards() const;
  std::string best_text() const;
  Json series() const;

  JobStart job_;
  JobDone end_;
  std::vector<StepDone> steps_;
  std::vector<Evaluated> evaluations_;
  std::vector<std::pair<std::string, double>> levels_;
};

// What the job was told, for the report's facts.
std::vector<std::pair<std::string, std::string>> job_facts(const JobOptions& o);
// Of this machine and this build, for the report's facts: version, processor, date.
std::vector<std::pair<std::string, std::string>> machine_facts();

// What the page of a plan shows, from what the library says of "overview".
Json plan_page(Json overview, const std::string& model);

}  // namespace epl::tools
