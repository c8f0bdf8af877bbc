// The numbers that live between steps beside the tensors of the state, and are changed by what a step did or by the
// host: how many steps were done, the seed, the rates and their scale, what is frozen, whether the last step counted.
// They are rows of one table: how a checkpoint keeps a row, how it comes back, and what a step does to it.
// Equal on all ranks by construction: each process starts from the same options, changes its numbers by metrics that
// are the same everywhere, and tells what the host has set with each call (lines), so that other numbers are noticed.
// Thread safety: one caller at a time. `progress` from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/compile/compiled_plan.h"
#include "core/runtime/checkpoint.h"
#include "core/runtime/progress.h"

namespace epl {

struct StepMetrics {
  int64_t step = 0;  // of this step, counted from 0
  double loss = 0;
  double gradient_norm = -1;  // before clipping; -1 when it was not computed
  double learning_rate = 0;
  double seconds = 0;  // that it took
  // Nothing in the batch counts, as where all targets are ignored: the loss is NaN, and the step has counted but
  // changed nothing besides. Gradients that are kept are zero.
  bool counts_nothing = false;
  // Gradients are too large for float16 at the scale that the loss has had: nothing is changed, the step has not
  // counted, and the scale is half of what it was. The same batch may be given again. Gradients alone are `skipped`
  // then.
  bool overflowed = false;
  bool counts_in_part = false;  // one of several means is over nothing: the loss is NaN, and the others have trained
  // Why the step has not changed the state, Code::not_finite: the loss or a gradient is not finite. Its message names
  // the first parameter whose gradient is not, and `where` is the node (input, parameter) that the first NaN came out
  // of.
  Status skipped;
};

// All of a step, or one of the two phases that a host may call one by one.
enum class StepPhase : uint8_t { all, gradients, update };

class HostState {
 public:
  HostState(std::shared_ptr<const CompiledPlan> plan, uint64_t seed);
  HostState(const HostState&) = delete;

  int64_t steps_done() const { return steps_done_; }
  void set_steps_done(int64_t steps);
  uint64_t seed() const { return seed_; }
  void set_seed(uint64_t seed) { seed_ = seed; }
  // What the learning rate is multiplied with besides its schedule, from the next step on.
  const RateScale& rate_scale() const { return rate_scale_; }
  // What is set between steps, by its name: "learning_rate_scale", "learning_rate" (the option lr) and of a group
  // "learning_rate:0", and "frozen:PATTERN" of trained parameters, 1 or 0. And what follows from steps and is not set:
  // "loss_scale", and "skipped_steps", which have overflowed.
  Result<double> number(std::string_view name) const;
  Status set_number(std::string_view name, double value);
  // What gradients are multiplied with on their way.
  double loss_scale() const { return loss_scale_; }
  int64_t skipped_steps() const { return skipped_steps_; }
  // A number was measured, which a schedule that watches may lower the rate for.
  Status observe(double value, bool higher_is_better);

  // What the next step's host scalars are computed from, but for outputs of the last one.
  StepFacts facts(StepPhase phase) const;
  // A step was carried out, or one phase of it.
  void after(const StepMetrics& metrics, StepPhase phase);
  // The last step that was done. Any thread.
  Progress::Numbers progress() const { return progress_.read(); }

  // All rows, as a checkpoint keeps them.
  void save(Checkpoint& checkpoint) const;
  // Whether they can be loaded. What does not fit this plan is left out.
  static Status check(const Checkpoint& checkpoint);
  void load(const Checkpoint& checkpoint);
  // What the host may have set, as lines "key: value" (told_line) for the other processes. `version` is another one
  // where they may have changed.
  std::string lines() const;
  uint64_t version() const { return version_; }

 private:
  struct Row;
  static std::span<const Row> rows();
  void count_step(const StepMetrics& metrics, StepPhase phase);
  void follow_scale(const StepMetrics& metrics, StepPhase phase);
  void save_loss_scale(Facts& facts) const;
  void load_loss_scale(const Facts& facts);
  Status set_scale(double scale);
  std::string scale_lines() const;
  std::string fact_line(void (HostState::*save)(Facts&) const) const;
  void save_rates(Facts& facts) const;
  void load_rates(const Facts& facts);
  void save_frozen(Facts& facts) const;
  void load_frozen(const Facts& facts);
  Result<size_t> group_of(std::string_view name) const;
  Result<std::vector<size_t>> trained_matching(std::string_view pattern) const;

  const std::shared_ptr<const CompiledPlan> plan_;
  int64_t steps_done_ = 0;
  uint64_t seed_;
  RateScale rate_scale_;
  std::vector<double> rates_;    // by group; empty: those of the plan
  std::vector<uint8_t> frozen_;  // by trained parameter; empty: none
  double loss_scale_ = 1;
  int64_t good_steps_ = 0;     // since the scale has changed
  int64_t skipped_steps_ = 0;  // that overflowed, in all
  bool last_applied_ = true;   // whether the last step has changed the state
  Progress progress_;
  uint64_t version_ = 0;
};

}  // namespace epl
