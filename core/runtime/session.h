// A running job: a compiled plan with memory, threads and state. Its parts are the `World` of its processes, the
// `State` (tensors that live between steps), the `HostState` (numbers that do), and the `Results` of the last calls.
// Thread safety: one caller at a time (the C API checks); `stop` of a call may be cancelled from any thread. What is
// marked "any thread" may be called beside it.
#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/compile/compiled_plan.h"
#include "core/program/step_trace.h"
#include "core/runtime/foreign_tensors.h"
#include "core/runtime/host_state.h"
#include "core/runtime/input_slices.h"
#include "core/runtime/results.h"
#include "core/runtime/session_options.h"
#include "core/runtime/state.h"
#include "core/runtime/world.h"

namespace epl {

struct CallOptions {
  Stop stop;
  int64_t samples = 0;  // of slices: how many of the full batch count, its first ones; 0: all
  int64_t stream = 0;   // of tensors in memory of a device: the program's, as epl_call_options numbers it
  // Which sample stands in a row of an input, for messages; "" where nobody knows. May be empty.
  std::function<std::string(size_t input, int64_t row)> position{};
};

// Over processes, each makes the same calls with the same inputs, the full batch of all ranks, of which its ranks take
// their shards, or with its slice of them (SessionOptions::slices), a full batch in all; outputs that are wanted are
// the same, and replicated on each. What fails on one fails on all: a step may be called again when the reason is gone,
// but not when a process is, which `Code::peer_failed` tells from then on. A process that cannot make its call says so
// by `World::give_up`.
//
// Inputs, and outputs of `predict_into`, may lie in memory of a device of the session (core/runtime/foreign_tensors.h).
class Session {
 public:
  static Result<std::unique_ptr<Session>> create(const Host& host, std::shared_ptr<const CompiledPlan> plan,
                                                 const SessionOptions& options = {});

  const CompiledPlan& plan() const { return *plan_; }
  const std::shared_ptr<const CompiledPlan>& shared_plan() const { return plan_; }
  const Host& host() const { return host_; }
  World& world() const { return *world_; }
  State& state() const { return *state_; }
  HostState& host_state() const { return *host_state_; }
  const Results& results() const { return *results_; }

  // Inputs of the global batch in the order of the entry's program, exactly of the types of one of the plan's shapes;
  // evaluate and predict take fewer samples as well. On an error that leaves the state consistent, the same step may be
  // called again. A step that was skipped is none, and does not count.
  Status step(std::span<const Tensor> inputs, StepMetrics& metrics, const CallOptions& options = {});
  // The two phases of a step, where the trainer keeps gradients: those of a batch, which become state, and an update by
  // the gradients that the state has. A step is one behind the other, bit by bit; buffers are those of the first half.
  // An update takes each gradient once, computed or set since the last update, and since weights were set or loaded.
  // The metrics of an update have the loss of the last batch, NaN where there was none.
  Status gradients(std::span<const Tensor> inputs, StepMetrics& metrics, const CallOptions& options = {});
  Status apply(StepMetrics& metrics, const CallOptions& options = {});
  // The mean of what counts among the samples given.
  Status evaluate(std::span<const Tensor> inputs, double& loss, const CallOptions& options = {});
  // One forward pass of an entry but train. Outputs are tensors of the global types of a full batch of the entry that
  // `fit` names, made by the caller; empty ones are not wanted. Of fewer samples than a batch the first rows are theirs
  // (first_samples).
  Status run(EntryKind kind, std::span<const Tensor> inputs, std::span<Tensor> outputs,
             const CallOptions& options = {});
  Status predict(std::span<const Tensor> inputs, std::span<Tensor> outputs, const CallOptions& options = {}) {
    return run(EntryKind::predict, inputs, outputs, options);
  }
  // A prediction into the caller's own tensors: outputs of the types of what `Results::given_output` gives of as many
  // samples.
  Status predict_into(std::span<const Tensor> inputs, std::span<Tensor> outputs, const CallOptions& options = {});
  // The entry whose shape these inputs have, and how many samples of its batch they hold, or of slices how many count,
  // as the call says. Of several shapes it is the one that they fill, else the first that they fill in part. An error
  // names the input that does not fit, or all shapes.
  struct Fit {
    const Entry* entry = nullptr;
    int64_t samples = 0;
  };
  Result<Fit> fit(EntryKind kind, std::span<const Tensor> inputs, const CallOptions& options = {}) const;
  // Of an input, what a call was given of it, as a full batch: of slices the processes gather those of all.
  Result<Tensor> full_input(const Entry& entry, size_t input, const Tensor& given);
  // What the next step's host scalars are computed from.
  StepFacts facts() const { return facts(StepPhase::all); }

  // What the ranks of this process do in the next `steps` steps is recorded, and what was recorded before is forgotten;
  // 0: nothing is. A step then takes two looks at the clock longer for each instruction, and allocates nothing.
  // `entry`: which of the plan's.
  void record(int64_t steps, size_t entry = 0);
  StepTrace trace() const;
  // Bytes used by a rank so far, from the instructions that ran; never above the plan's. -1 where the rank is not of
  // this process. Any thread.
  int64_t memory_bytes_used_by(int rank, MemoryKind memory = MemoryKind::device) const;
  // By the fullest rank of this process.
  int64_t memory_bytes_used(MemoryKind memory = MemoryKind::device) const;
  // On a simulated device: when the last rank was done, in seconds of the simulation since the session began.
  double virtual_seconds() const;

 private:
  Session(const Host& host, std::shared_ptr<const CompiledPlan> plan, uint64_t seed);
  size_t index_of(const Entry& entry) const { return static_cast<size_t>(&entry - plan_->entries().data()); }
  Result<int64_t> samples_of(const Entry& entry, std::span<const Tensor> inputs, const CallOptions& options) const;
  Status check_room(const Entry& entry, int64_t samples, std::span<const Tensor> outputs) const;
  Status place_inputs(const Entry& entry, std::span<const Tensor> inputs);
  void place_outputs(std::span<const Tensor> outputs);
  Status describe_run(const RunRequest& request, const Entry& entry, std::span<const Tensor> inputs);
  void reserve_pointers();
  void measure_memory();
  // What became of a call that came to its ranks. Nothing else of a call is kept, so that no later one meets it.
  struct Outcome {
    Status status;
    bool done = false;            // all ranks of this process have carried it out, whatever became of its outputs
    Status skipped;               // why a step that was carried out has not changed the state
    bool counts_nothing = false;  // StepMetrics::counts_nothing
    bool overflowed = false;      // StepMetrics::overflowed
  };
  Status train(StepPhase phase, std::span<const Tensor> inputs, StepMetrics& metrics, const CallOptions& options);
  StepFacts facts(StepPhase phase) const;
  Outcome execute(const Entry& entry, std::span<const Tensor> inputs, const CallOptions& options,
                  StepPhase phase = StepPhase::all);
  Outcome run_ranks(size_t entry, const RunRequest& request);
  void run_rank(size_t entry, const RunRequest& request, LocalRank& rank);
  bool counts_nothing(const Entry& entry);
  void log_overflow(const Entry& entry, std::span<const Tensor> inputs, const RunRequest& request, int64_t verdict);
  Status reason(const Entry& entry, std::span<const Tensor> inputs, RunRequest request, int64_t verdict);
  Outcome end_together(size_t entry);
  Status share_outputs(const Entry& entry, const RunRequest& request);
  Status check_gradients(const Entry& entry, RunRequest request);

  const Host host_;
  const std::shared_ptr<const CompiledPlan> plan_;
  const std::unique_ptr<HostState> host_state_;
  std::unique_ptr<World> world_;
  std::unique_ptr<State> state_;
  std::unique_ptr<Results> results_;
  std::unique_ptr<ForeignTensors> foreign_;
  InputSlices slices_;
  double batch_loss_ = std::numeric_limits<double>::quiet_NaN();  // of the last batch that could be computed
  std::vector<uint64_t> scalars_;
  std::vector<const void*> input_pointers_;
  std::vector<void*> output_pointers_;
  std::vector<ForeignDevice*> input_devices_, output_devices_;  // RunRequest::input_devices
  std::vector<std::byte> parts_;                                // of an output, on their way
  std::set<const Entry*> same_again_;  // whose gradients were found to be the same with nothing computed again
};

}  // namespace epl
