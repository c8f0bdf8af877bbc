// The events of a training job, for whoever shows or stores them. A listener is a file of its own, added in Training's
// constructor. It hears of everything in the order in which it happens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/json.h"

namespace epl::tools {

struct StepDone {
  int64_t step = 0;  // steps done, this one included
  double epoch = 0;  // how often the data has been seen, as a fraction
  double loss = 0;
  double learning_rate = 0;
  double gradient_norm = -1;  // -1: not computed
  double loss_scale = 1;      // behind this step: what gradients are multiplied with on their way
  int64_t skipped_steps = 0;  // that have overflowed and changed nothing, in all
  double seconds = 0;         // of training so far, earlier runs included
  int64_t samples = 0;        // seen so far, earlier runs included
  int64_t used_bytes = 0;
  bool scales() const { return loss_scale != 1 || skipped_steps > 0; }
};

// Numbers of data that is not trained on.
struct Evaluated {
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> metrics;  // the loss first, under the name "loss"
  int64_t samples = 0;
  double seconds = 0;  // as above
  bool best = false;   // the best so far, by the metric that counts
};

// The best of them, nullptr where there is none.
inline const Evaluated* best_of(const std::vector<Evaluated>& all) {
  const Evaluated* best = nullptr;
  for (const Evaluated& one : all) best = one.best ? &one : best;
  return best;
}

// Before the first step.
struct JobStart {
  std::string model, out;
  int64_t parameters = 0, tensors = 0;   // that are trained
  int64_t first_step = 0, steps = 0;     // done before this run; in all
  int64_t batch = 0, epoch_samples = 0;  // samples of a step; of the training data
  int64_t units_per_step = 0;            // tokens, or samples
  std::string unit = "samples";
  int64_t planned_bytes = 0;
  std::string command;  // what was typed
  // Of a run that goes on: what was measured before, and how long that took.
  std::vector<StepDone> earlier_steps;
  std::vector<Evaluated> earlier_evaluations;
  double earlier_seconds = 0;
};

struct CheckpointSaved {
  int64_t step = 0;
  std::string path;
  bool best = false;
};

struct JobDone {
  int64_t step = 0;
  double seconds = 0;  // of training in all
  std::string weights_hash;
  std::string ended = "steps";  // "steps"; "interrupted"; "failed" or "stopped", with the reason
  std::string reason;           // in words, where it did not end at its steps
  std::string resume;           // a checkpoint to go on from, or the folder of the run whose newest it is
  int64_t resume_step = 0;      // of that checkpoint, which may be an earlier one than `step`
  std::string sample;           // text that the model wrote
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual void start(const JobStart&) {}
  virtual void step(const StepDone&) {}
  virtual void evaluated(const Evaluated&) {}
  virtual void saved(const CheckpointSaved&) {}
  // Anything else: `event` for programs, `line` for people.
  virtual void notice(const Json& event, const std::string& line) { static_cast<void>(event), static_cast<void>(line); }
  virtual void warning(const std::string& message) { static_cast<void>(message); }
  virtual void done(const JobDone&) {}
};

// All of them, in order.
class Listeners : public Listener {
 public:
  void add(std::shared_ptr<Listener> one) { all_.push_back(std::move(one)); }
  void start(const JobStart& e) override {
    for (auto& one : all_) one->start(e);
  }
  void step(const StepDone& e) override {
    for (auto& one : all_) one->step(e);
  }
  void evaluated(const Evaluated& e) override {
    for (auto& one : all_) one->evaluated(e);
  }
  void saved(const CheckpointSaved& e) override {
    for (auto& one : all_) one->saved(e);
  }
  void notice(const Json& event, const std::string& line) override {
    for (auto& one : all_) one->notice(event, line);
  }
  void warning(const std::string& message) override {
    for (auto& one : all_) one->warning(message);
  }
  void done(const JobDone& e) override {
    for (auto& one : all_) one->done(e);
  }

 private:
  std::vector<std::shared_ptr<Listener>> all_;
};

}  // namespace epl::tools
