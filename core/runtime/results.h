// What steps and evaluations gave, until the next ones, and what a caller gets of an output.
// Thread safety: one caller at a time.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/compile/compiled_plan.h"
#include "core/compile/sample_slices.h"
#include "core/runtime/host_state.h"
#include "core/runtime/local_ranks.h"

namespace epl {

Result<const Entry*> find_entry(const CompiledPlan& plan, EntryKind kind);

class Results {
 public:
  // `ranks` are those of this process. `predicts_only`: there are no steps and no evaluations.
  Results(std::shared_ptr<const CompiledPlan> plan, const LocalRanks& ranks, bool predicts_only);

  // An output of the last step besides the loss, for example "gradient_norm:<parameter>".
  Result<double> step_scalar(std::string_view name) const;
  Result<Tensor> step_output(std::string_view name) const;
  // Of the last step, or of the last evaluation, an output that the strategy merges, as it asks. Of a step also the
  // others.
  Result<Tensor> output(EntryKind kind, std::string_view name) const;
  // What the caller gets of an output of a batch of which so many samples count.
  Tensor given_output(const Entry& entry, size_t index, const Tensor& full, int64_t samples) const;
  TensorType given_type(const Entry& entry, size_t index, int64_t samples) const;

  static double loss_of(const Entry& entry, const std::vector<Tensor>& outputs);
  // Where a call of the entry writes, by output; empty: it is not kept. What it wrote counts when it is kept.
  std::vector<Tensor>& next(const Entry& entry) { return entries_[index_of(entry)].next; }
  std::vector<Tensor>& last(const Entry& entry) { return entries_[index_of(entry)].last; }
  // Where a step, or a half of one, writes: null where it gives nothing new.
  void begin_step(const Entry& entry, StepPhase phase, std::vector<void*>& pointers);
  void keep_step(const Entry& entry, StepPhase phase);
  void keep_evaluation(const Entry& entry, int64_t samples);
  const Tensor* last_output(std::string_view name) const;  // of the last step; null: there is none

 private:
  struct OfEntry {
    std::vector<Tensor> last, next;  // by output
  };
  size_t index_of(const Entry& entry) const { return static_cast<size_t>(&entry - plan_->entries().data()); }
  static bool is_given(const Tensor& output, StepPhase phase);
  SampleRange given_range(const Entry& entry, size_t index, int64_t samples) const;

  const std::shared_ptr<const CompiledPlan> plan_;
  const LocalRanks& ranks_;
  std::vector<OfEntry> entries_;
  const Entry* stepped_ = nullptr;    // of the last step
  const Entry* evaluated_ = nullptr;  // of the last evaluation
  int64_t evaluated_samples_ = 0;
};

}  // namespace epl
