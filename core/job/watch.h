// What a job is measured on while it learns: data that it does not train on. The number that is watched decides which
// weights are the best, when a plateau lowers the rate, and when to end.
#pragma once

#include <memory>
#include <optional>

#include "core/job/history.h"
#include "core/job/settings.h"
#include "core/runtime/evaluation.h"

namespace epl {

class Watch {
 public:
  // Refuses what does not fit the plan, and what needs held-out data (null: there is none).
  static Result<std::unique_ptr<Watch>> create(const Session& session, const JobSettings& settings, const Dataset& data,
                                               const Dataset* held_out);
  bool any() const { return evaluation_ != nullptr; }
  // Whether to measure after `step` of `steps`; at the end it is measured in any case.
  bool due(int64_t step, int64_t steps) const;
  // One look at the data, nothing remembered. After an error the same can be asked again.
  struct Measured {
    int64_t samples = 0;
    NamedNumbers metrics;  // the loss first
    double monitored = 0;
    bool best = false;  // better than all before
  };
  Result<Measured> measure(Session& session, Dataset& held_out, const Stop& stop);
  // `counts`: it was due, so it counts for patience and for a rate that follows it.
  Status note(Session& session, const Measured& measured, int64_t step, bool counts);
  // What earlier runs have measured.
  void remember(const std::vector<Json>& lines);
  // The line that says what is measured on, and sentences on what is not as in `earlier`, that line of the run that
  // goes on. Where the data is another, `same` is false: numbers of both do not compare.
  struct Told {
    Json event;
    std::vector<std::string> warnings;
    bool same = true;
  };
  Result<Told> tell(const Dataset& held_out, const Json& earlier) const;

  const std::string& monitor() const { return monitor_; }
  std::optional<double> best() const { return best_; }
  int64_t best_step() const { return best_step_; }
  // Why the job should end; empty: it should not.
  std::string wants_end() const;

 private:
  Watch(const JobSettings& settings, int64_t epoch) : settings_(settings), epoch_(epoch) {}
  bool better(double value) const;
  void count(double value, int64_t step, bool counts);
  const JobSettings settings_;
  const int64_t epoch_;  // batches of the training data; 0: nobody knows
  std::unique_ptr<Evaluation> evaluation_;
  std::string monitor_;
  bool higher_is_better_ = false, watches_ = false;
  std::optional<double> best_;
  int64_t best_step_ = -1, since_best_ = 0;
};

}  // namespace epl
