// What a model is measured on while it learns: data that it does not train on. The number that is watched decides which
// weights are the best, when a plateau lowers the rate, and when to stop.
#pragma once

#include <memory>
#include <optional>

#include "tools/job.h"
#include "tools/listener.h"
#include "tools/measure.h"

namespace epl::tools {

struct ValidationOptions {
  int64_t every = 0;        // steps between measurements; 0: a quarter of all, or an epoch where epochs were asked for
  double every_epochs = 0;  // the same in epochs
  std::optional<int64_t> batches;  // at most; of text 40 unless named, else all
  std::string metrics, monitor = "loss";
  int64_t patience = 0;  // measurements without a better one before training ends; 0: it never does
};
void add_validation_options(CLI::App& app, ValidationOptions& o);

class Validation {
 public:
  Validation(const ValidationOptions& o, const JobOptions& job, const Plan& plan, const Session& session,
             const DataFiles& data)
      : o_(o), job_(job), plan_(plan), session_(session), data_(data) {}
  // Once plan, session and data are there: reads the names, refuses what needs held-out data where there is none.
  void prepare(const Engine& engine);
  // A run that goes on: what it measured before.
  void resume(const std::vector<Evaluated>& earlier);
  bool any() const { return static_cast<bool>(data_.held_out); }
  // Whether to measure after `step` of `steps`; at the end it is measured in any case.
  bool due(int64_t step, int64_t steps) const;
  int64_t batches() const;  // 0: all
  const std::string& monitor() const { return monitor_; }
  // `counts`: it was due, so it counts for patience and for a rate that follows it.
  Evaluated measure(bool counts, Ending& ending);
  std::string wants_stop() const;

 private:
  bool better(double value) const;
  void note(double value, bool counts, bool best);
  const ValidationOptions& o_;
  const JobOptions& job_;
  const Plan& plan_;
  const Session& session_;
  const DataFiles& data_;
  std::unique_ptr<Measurer> measurer_;
  std::string monitor_;
  bool higher_is_better_ = false, watches_ = false;
  std::optional<double> best_;
  int64_t since_best_ = 0;
};

}  // namespace epl::tools
