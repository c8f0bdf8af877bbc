// A training job: data, model, plan, steps; then the trained weights, on disk. Who watches it is a listener
// (tools/listener.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/ending.h"
#include "tools/job.h"
#include "tools/listener.h"
#include "tools/output_folder.h"
#include "tools/report_data.h"
#include "tools/validation.h"

namespace epl::tools {

struct TrainOptions {
  JobOptions job;
  ValidationOptions validation;
  std::string out;  // empty: the folder of the run that goes on, else "out"
  std::string report, resume;
  std::vector<std::string> resume_anyway;
  bool overwrite = false, tensorboard = false;
  bool for_training = false;  // trained.onnx keeps its training mode
  int64_t checkpoint_every = 0, keep = 2, sample_bytes = 240;
  double checkpoint_minutes = 10, temperature = 0.8;
};

class Training {
 public:
  explicit Training(const TrainOptions& o);
  // The exit code.
  int run();

 private:
  void take_folder();
  void check_data() const;
  void start_job();
  void refuse_resume() const;
  bool leads() const { return o_.job.processes.leads(); }
  JobStart describe(const Json& job) const;
  int64_t bytes_to_write() const;
  void train();
  void compare_processes() const;
  std::string rows_of_batch() const;
  void end_by(const ApiError& e);
  void tell_baselines();
  void ask(epl_job_event& event);
  bool next(epl_job_event& event);
  void write_results(JobDone& done);
  void tell(const epl_job_event& event);
  void tell_step(const epl_job_event& event);
  void tell_measured(const epl_job_event& event);
  void tell_held_out(const Json& event);
  std::string sample();
  void find_checkpoint_of(JobDone& done) const;
  void finish();
  void plan_for_data();
  void add_listeners();
  void tell_warnings();
  void tell_warning(const std::string& message);
  template <class F> void attempt(const char* what, F&& f);

  TrainOptions o_;      // with --epochs as steps, once the data is known
  std::string resume_;  // the checkpoint to go on from; empty for none
  HostLog log_;         // before the engine, which writes into it to its end
  Engine engine_;
  OutputFolder folder_;
  Job job_;
  Model model_;
  DataFiles data_;
  Plan plan_;
  Store store_;
  Session session_;
  std::unique_ptr<Ending> ending_;
  std::string report_path_;
  std::shared_ptr<ReportData> report_;
  Listeners listeners_;
  double seconds_ = 0, call_seconds_ = 0;     // of training, earlier runs included; of the last call of the job
  bool together_ = true;                      // all processes have come to the last checkpoint
  bool of_another_ = false;                   // what has ended this process was said by another one
  int64_t first_step_ = 0, saved_step_ = -1;  // of the newest checkpoint of this run; -1: it has none yet
  std::string ended_ = "steps", reason_;
  int failure_ = 0;  // an exit code: of what went wrong first
};

}  // namespace epl::tools
