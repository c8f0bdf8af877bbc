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
  void check_data() const;
  void resume();
  bool leads() const { return o_.job.processes.leads(); }
  JobStart describe() const;
  int64_t bytes_to_write() const;
  void train();
  template <class F> void alone(F&& f);
  void compare_processes() const;
  void read_batch();
  StepDone take_step();
  std::string rows_of_batch() const;
  bool tell_held_out(const Json& earlier);
  void evaluate(bool counts);
  void save_checkpoint(bool best);
  void save_on_the_way(bool best);
  std::string sample();
  void finish();
  void plan_for_data();
  void add_listeners();
  void tell_warnings();
  void tell_warning(const std::string& message);
  template <class F> void attempt(const char* what, F&& f);
  double seconds() const;

  TrainOptions o_;      // with --epochs as steps, once the data is known
  std::string resume_;  // the checkpoint to go on from; empty for none
  HostLog log_;         // before the engine, which writes into it to its end
  Engine engine_;
  OutputFolder folder_;
  Model model_;
  DataFiles data_;
  Plan plan_;
  Store store_;
  Session session_;
  std::unique_ptr<Ending> ending_;
  std::vector<const epl_tensor*> batch_;
  Validation validation_;
  std::string report_path_;
  std::shared_ptr<ReportData> report_;
  Listeners listeners_;
  JobStart earlier_;  // what the history says of a run that goes on
  double started_ = 0, last_saved_ = 0, earlier_seconds_ = 0;
  int64_t saved_step_ = -1, measured_step_ = -1;
  std::string ended_ = "steps", reason_;
  int failure_ = 0;  // an exit code: of what went wrong first
};

}  // namespace epl::tools
