// A training job: data, model, plan, steps; then what was learnt, on disk. Who watches it is a listener (tools/listener.h).
#pragma once

#include <string>
#include <vector>

#include "tools/job.h"
#include "tools/listener.h"
#include "tools/report_data.h"
#include "tools/validation.h"

namespace epl::tools {

struct TrainOptions {
  JobOptions job;
  ValidationOptions validation;
  std::string out = "out", report, resume;
  int64_t checkpoint_every = 0, sample_bytes = 240;
  double temperature = 0.8;
  bool tensorboard = false;
  bool for_training = false;       // trained.onnx keeps its training mode
};

class Training {
 public:
  explicit Training(const TrainOptions& o);
  // The exit code.
  int run();

 private:
  JobStart describe() const;
  void train();
  StepDone take_step();
  void evaluate();
  void save_checkpoint();
  void finish();
  double seconds() const;

  const TrainOptions& o_;
  Engine engine_;
  Model model_;
  DataFiles data_;
  Plan plan_;
  Session session_;
  Cancel cancel_;
  std::vector<const epl_tensor*> batch_;
  Validation validation_;
  std::shared_ptr<ReportData> report_;
  Listeners listeners_;
  double started_ = 0, train_seconds_ = 0;
  std::string ended_ = "steps", reason_;
};

}  // namespace epl::tools
