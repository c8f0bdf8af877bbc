// Metrics of a session over any number of batches: one forward pass each gives the loss and what the metrics compare.
// Thread safety: one caller at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/runtime/mean_loss.h"
#include "core/runtime/session.h"
#include "core/train/metric.h"

namespace epl {

class Evaluation {
 public:
  // `metrics` as parse_metrics reads them; empty: those of the loss; "none": the loss alone. A metric that does not
  // apply is an error that says why.
  static Result<std::unique_ptr<Evaluation>> create(std::shared_ptr<const CompiledPlan> plan, std::string_view metrics);

  // A batch of the evaluate entry, or fewer samples, where `takes_partial`. The session must be of the same plan.
  Status add(Session& session, std::span<const Tensor> inputs, const CallOptions& options = {});
  // The next `batches` of a dataset that is bound to the evaluate entry; 0: all of it, from its first to its last,
  // after which it stands at its first again.
  Status add(Session& session, Dataset& dataset, int64_t batches, const CallOptions& options = {});
  // Whether batches that are not full can be added: not where the model computes its own loss.
  bool takes_partial() const { return partial_; }
  // Adds what another evaluation, of an equal plan with the same metrics, has seen.
  Status merge(const Evaluation& other);
  void reset();
  // An error after a call failed in the middle of counting, for lack of memory. The numbers are then of a part of a
  // batch, and only `reset` makes sense.
  Status usable() const;

  struct Number {
    std::string name;
    double value = 0;
    bool higher_is_better = false;
  };
  std::vector<Number> results() const;  // the loss first
  // By the name that results have, or by the metric's alone where no other has it.
  Result<Number> result(std::string_view name) const;
  int64_t samples() const { return samples_; }
  int64_t batch() const { return entry_.samples.batch; }
  const std::shared_ptr<const CompiledPlan>& plan() const { return plan_; }

 private:
  struct One {
    MetricSpec spec;
    MetricSubject subject;
    std::unique_ptr<Metric> metric;
    size_t output = 0, target = 0;  // ports of the evaluate entry
    bool log_loss = false;          // the loss's terms are -log p(target)
  };
  Evaluation(std::shared_ptr<const CompiledPlan> plan, const Entry& entry) : plan_(std::move(plan)), entry_(entry) {}
  Result<One> prepare(MetricSpec spec);
  Result<MetricSubject> subject_of(const MetricSpec& spec, size_t output, size_t target) const;

  std::shared_ptr<const CompiledPlan> plan_;
  const Entry& entry_;  // of the plan's first shape; ports are the same in all
  std::vector<One> metrics_;
  std::vector<std::vector<Tensor>> rooms_;  // by shape and output; empty: not wanted
  MeanLoss loss_;
  int64_t samples_ = 0;
  bool partial_ = true;
  bool torn_ = false;
};

}  // namespace epl
