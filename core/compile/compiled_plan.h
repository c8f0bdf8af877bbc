// Everything that is decided before a job runs, and nothing allocated for it: per entry (train, evaluate, predict) the
// graph, the plan, the local graph and the program. Memory is known to the byte here.
// Thread safety: immutable once made.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/compile/entry.h"
#include "core/compile/plan_options.h"
#include "core/program/link.h"
#include "core/train/mixed_precision.h"

namespace epl {

class CompiledPlan {
 public:
  // `least`, if not null: where the plan does not keep to `memory.budget`, the bytes that a rank has at least.
  static Result<std::shared_ptr<const CompiledPlan>> create(const Host& host, const PlanOptions& options,
                                                            int64_t* least = nullptr);

  const PlanOptions& options() const { return options_; }
  const Entry* entry(EntryKind kind, int shape = 0) const;
  int shapes() const { return 1 + static_cast<int>(options_.shapes.size()); }
  const std::vector<Entry>& entries() const { return entries_; }
  // Of all ranks; `state_of` those of a virtual device.
  const StateLayout& state() const { return state_; }
  const StateLayout& state_of(int virtual_device) const { return states_[static_cast<size_t>(virtual_device)]; }
  int virtual_devices() const { return static_cast<int>(states_.size()); }
  // The same in all entries, but for the units and micro-batches of other shapes.
  const Mesh& mesh(int virtual_device) const {
    return entries_.front().plan.meshes[static_cast<size_t>(virtual_device)];
  }
  int virtual_device_of_rank(int rank) const { return entries_.front().plan.virtual_device_of_rank(rank); }
  const std::vector<std::string>& trained() const { return trained_; }
  const std::vector<std::pair<std::string, std::string>>& untrained() const { return untrained_; }
  // What the owner of the job should know about how its inputs and its loss were taken.
  const std::vector<std::string>& notes() const { return notes_; }
  // Of the model, what neither its fingerprint nor a checkpoint holds (Model::constants).
  const std::map<std::string, std::string>& constants() const { return constants_; }
  // The low-rank adapters beside the model's weights.
  const std::vector<Adapter>& adapters() const { return adapters_; }
  const LossFacts& loss() const { return loss_; }  // empty where there is no train entry
  const Schedule& schedule() const { return schedule_; }
  const MixedPrecision& mixed_precision() const { return mixed_; }
  int threads_per_rank() const { return threads_; }
  const std::shared_ptr<Device>& device() const { return device_; }
  // Values of a train entry's host scalars before a step, in its order, each as a slot holds its element.
  void scalars(const Entry& entry, const StepFacts& facts, std::vector<uint64_t>& out) const;
  // The learning rate of the first trained parameter before a step.
  double learning_rate(const StepFacts& facts) const;
  // The option lr by group, those outside any first.
  const std::vector<double>& rates() const { return rates_; }

  // "graph", "plan", "local", "program", "kernels" (which were chosen, and why not others) or "texts" (what they are
  // compiled from) of an entry.
  Result<std::string> text(EntryKind kind, std::string_view stage, int shape = 0) const;
  // For people: what runs where, what it costs, why.
  std::string explain() const;

 private:
  static Result<std::shared_ptr<const CompiledPlan>> compile_all(const Host& host, const PlanOptions& options,
                                                                 int64_t* least);
  // `passes`: see EntryMaker.
  static Result<std::shared_ptr<CompiledPlan>> compile(const Host& host, const PlanOptions& options,
                                                       const std::string& passes);
  friend Result<std::shared_ptr<const CompiledPlan>> fitting_plan(const Host& host, const PlanOptions& options,
                                                                  const BudgetFit& fit,
                                                                  std::shared_ptr<const CompiledPlan> as_it_is);
  // Of a rank.
  static int threads_of(const Host& host, const PlanOptions& options);
  // Replaces a plan that needs more than `budget`.
  static Status keep_to_budget(const Host& host, const PlanOptions& options, int64_t budget, int64_t* least,
                               std::shared_ptr<CompiledPlan>& plan);
  // `threads`: that a rank should have. `plan`, if not null: by the options, without a budget.
  static Status finish_within(const Host& host, const PlanOptions& options, const BudgetFit& fit, int threads,
                              int64_t budget, std::shared_ptr<CompiledPlan>& plan);
  static Result<std::shared_ptr<CompiledPlan>> with_most_threads(const Host& host, PlanOptions options,
                                                                 const std::string& passes, int64_t budget);
  void forget_search(const PlanOptions& given);
  EntryMaker maker(const LossFacts& loss) const;
  Status take_annotations();
  Status add_entries(int shape);
  Status add_entry(EntryKind kind, int shape, Graph graph, SamplePositions outputs, const LossFacts& loss);
  Status add_train_entry(const Binding& binding, int shape);
  void add_notes(const std::vector<std::string>& notes);
  Status check_shape(int shape) const;
  Status check_scopes() const;
  Status check_merges() const;
  Status check_meshes() const;
  Status link_programs();
  Result<Graph> bound(Binding binding, Binding::Mode mode);
  Result<SamplePositions> positions_of(const std::function<Result<Graph>()>& make);
  LossSpec loss_spec() const;
  TrainOptions training() const;
  Result<Graph> evaluation_graph(const Binding& binding);
  PlanOptions options_;
  std::vector<Entry> entries_;
  StateLayout state_;
  std::vector<StateLayout> states_;
  std::vector<std::string> trained_;
  std::vector<std::pair<std::string, std::string>> untrained_;
  std::vector<Adapter> adapters_;
  struct Scalar {
    std::string name;
    DType dtype;
    std::function<double(const StepFacts&)> at;
  };
  std::vector<Scalar> scalars_;
  std::vector<double> rates_;
  int first_group_ = 0;
  std::vector<std::string> notes_;
  std::map<std::string, std::string> constants_;
  int threads_ = 1;
  MixedPrecision mixed_;
  std::string passes_;  // EntryMaker::passes
  // Independent micro-batches, of the current graph, and where there are several: the samples of them all.
  int64_t independent_ = 1, batch_ = 0;
  std::optional<TensorType> target_;  // of the current shape
  LossFacts loss_;
  Schedule schedule_;
  std::shared_ptr<Device> device_;  // owns the kernel rows that the programs point to
};

// The trained parameter whose gradient this state is; empty: it is none.
std::string_view gradient_of(const CompiledPlan& plan, std::string_view name);

}  // namespace epl
