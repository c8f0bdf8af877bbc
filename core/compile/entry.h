// One entry of a compiled plan: what a session runs to train, to evaluate or to predict, with a batch of one shape.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend/device.h"
#include "core/compile/input_bounds.h"
#include "core/compile/merged_outputs.h"
#include "core/compile/plan_options.h"
#include "core/compile/sample_dims.h"
#include "core/program/program.h"
#include "core/strategy/samples.h"

namespace epl {

// check: train with nothing computed again, whose gradients are compared with those of train.
enum class EntryKind : uint8_t { train, evaluate, predict, check };
std::string_view entry_name(EntryKind kind);
// "train", or of another shape "train@1".
std::string entry_name(EntryKind kind, int shape);

// A tensor of the caller.
struct Port {
  std::string name;
  TensorType global_type;
};

struct Entry {
  EntryKind kind = EntryKind::train;
  int shape = 0;                       // 0: PlanOptions::binding; n: PlanOptions::shapes[n - 1]
  std::shared_ptr<const Graph> graph;  // before composites without a kernel are expanded
  Plan plan;
  // By virtual device, whose ranks share them.
  std::vector<LocalGraph> locals;
  std::vector<Program> programs;
  // What programs' ports and scalars refer to by index.
  std::vector<Port> inputs, outputs;
  std::vector<std::string> scalars;
  int loss_output = -1;            // port of the scalar loss
  int verdict_output = -1;         // port of `verdict_output` (core/train/train_step.h), of the train entry
  int counted_output = -1;         // port of what counts in a batch: of train, and of evaluate where it has no terms
  std::vector<std::string> notes;  // how its inputs were taken, where nobody has said it
  // Of evaluate: ports of what the loss compares, of its terms and of their weights (core/train/loss.h), -1 for none,
  // and the model's outputs, which are ports from `first_output` on, in its order.
  int loss_scores = -1, loss_terms = -1, loss_weights = -1, first_output = 0;
  std::vector<InputBound> bounds;  // what integers of the inputs may be
  SampleDims samples;              // where inputs and outputs count samples
  std::vector<std::vector<bool>>
      applied;  // of train, where gradients are kept: applied_instructions, by virtual device
  std::vector<std::optional<OutputMerge>> merges;  // by output
  // Where ranks of a virtual device agree on the end of a step, if their program has no verdict.
  int64_t agreement_bytes(int virtual_device) const;
  // What a rank of a virtual device has for this entry alone.
  int64_t own_bytes(int virtual_device) const;
  std::string name() const { return entry_name(kind, shape); }
  const Mesh& mesh(int virtual_device) const { return plan.meshes[static_cast<size_t>(virtual_device)]; }
};
// "x f32[8,4], target i64[8]"
std::string inputs_text(const Entry& entry);

// Outputs of the evaluate entry that metrics are made of, beside its loss.
inline constexpr std::string_view scores_name = "loss.scores", terms_name = "loss.terms", weights_name = "loss.weights";

// What entries of one plan have in common while they are made.
struct EntryMaker {
  const PlanOptions& options;
  Device& device;
  int threads = 1;  // of a rank
  const LossFacts& loss;
  const std::vector<Entry>& before;  // of the same plan
  std::string passes = {};           // of a train entry; empty: the default ones
};
// Which memory the ranks of a device have beside that in which kernels compute: the fastest; device: none.
MemoryKind memory_beside(Device& device);
// Decides one entry's plan; it has no program yet. `outputs`: where they count samples, if the graph does not show it.
Result<Entry> decide_entry(const EntryMaker& maker, EntryKind kind, int shape, Graph graph, SamplePositions outputs);
// The programs of a plan.
Result<Lowered> lower_plan(const EntryMaker& maker, const Plan& plan);
// Makes the programs of its plan, and what is known of the entry with them.
Status lower_entry(const EntryMaker& maker, Entry& entry);
// The entry `check` of an entry `train`, if its plan computes anything again and the strategy asks for a comparison.
Result<std::optional<Entry>> check_entry_of(const EntryMaker& maker, const Entry& train);

}  // namespace epl
