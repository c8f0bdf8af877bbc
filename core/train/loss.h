// Losses: rows that turn a model's outputs into one scalar, the mean over the global batch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/ir/op.h"

namespace epl {

// Name of the graph input that holds what the loss compares with, unless the host gives another one.
inline constexpr std::string_view target_name = "target";

struct LossSpec {
  std::string name = "softmax_cross_entropy";  // a row, or "output:<name>": a scalar output of the graph
  std::string output;                          // which output of the model it is applied to; empty: the first
  Attributes options;                          // as the row declares, for example {ignore_index=-100}
  // Type of the target the host will pass. Needed where the shape of the output does not determine it.
  std::optional<TensorType> target;
  bool peel = true;          // apply a loss of scores to the scores under a last softmax or sigmoid
  int target_batch_dim = 0;  // the dimension of the target that counts samples, -1 for none
  std::string target_input = std::string(target_name);
};

// What targets are; it says which metrics apply.
enum class Task : uint8_t { numbers, classes, probabilities };

// What is known of a loss besides its number. Empty for a loss that the model computes itself.
struct LossFacts {
  Task task = Task::numbers;
  int class_axis = -1;  // of the output, where the task is classes
  int64_t classes = 0;
  std::optional<int64_t> ignored;  // a class index that does not count
  bool log_loss = false;           // the terms are -log p(target), unweighted
  std::string metrics;             // what to measure unless the host names something
};

// A loss: the scalar, or the terms of which it is the mean. `terms` is what each position or element adds, 0 where it
// does not count. `weights`, of the same shape, is what each of them counts (absent: one). If a row gives no scalar, it
// is sum(terms) / sum(weights).
struct Loss {
  Var value, terms, weights;
};

// sum(terms) / sum(weights). Both sums are over the full batch, so that no cut of it changes the result.
Var loss_mean(const Loss& loss);

// What a row builds its loss with. `target` adds the graph input of the targets and returns it.
class LossBuilder {
 public:
  LossBuilder(Builder& builder, Var output, const Attributes& options, const LossSpec& spec)
      : b(builder), output(output), options(options), spec_(spec) {}
  Builder& b;
  Var output;
  const Attributes& options;
  bool measures = false;  // the terms are wanted as well
  LossFacts facts;        // for the row to fill in
  // The target, of type `fallback` unless the host told another.
  Var target(const TensorType& fallback);
  const std::optional<TensorType>& wanted_target() const { return spec_.target; }

 private:
  const LossSpec& spec_;
};

struct LossRow {
  std::string name;
  std::string doc;
  std::vector<Option> options;
  Task task = Task::numbers;
  std::string metrics;                            // the default ones: "accuracy"
  Result<Loss> (*build)(LossBuilder&) = nullptr;  // in f32 (or the output's element type)
  // Of a loss that takes scores: whether the operand of `last`, the node that makes the output, holds these scores. The
  // result of `last` may be reshaped or transposed afterwards. Its axis is then dimension `axis` of the output; -1: it
  // is not a dimension any more.
  bool (*takes_operand_of)(const LossBuilder&, const Node& last, int axis) = nullptr;
};
using LossTable = TableOf<LossRow>;
const LossTable& loss_table();  // generated

// Adds the loss to a forward graph, with its target input; returns the scalar. `notes`: what the owner of the model
// should know about where it was applied.
Result<Value> add_loss(Graph& graph, const LossSpec& spec, LossFacts* facts = nullptr,
                       std::vector<std::string>* notes = nullptr);
// How much counts in the means of what counts (OpDef::counts) that a loss is made of. Where one of them is 0, the loss
// is NaN though every gradient is finite.
struct LossCounts {
  std::vector<Value> counts;  // one number each
  bool all = false;           // no parameter takes part in the loss but through these means
};
LossCounts loss_counts(const Graph& graph, Value loss);
// The graph's output that a loss is applied to, by the name it has; empty for the first.
std::string_view loss_output_name(const LossSpec& spec);

// The same with the terms, for evaluation: over batches of which some are not full, the mean of what counts is
// sum(terms) / sum(weights) over all of them.
struct MeasuredLoss {
  Value value, terms, weights;  // terms: none where the model computes its loss itself; weights: none where all count 1
  Value scores;                 // what is compared with the target; none where the model computes its loss itself
  Value counted;  // of a loss that the model computes itself: 0 where a mean that it is made of is over nothing
  LossFacts facts;
};
Result<MeasuredLoss> add_measured_loss(Graph& graph, const LossSpec& spec);

#define EPL_LOSS(row_name) EPL_ROW(EPL_LOSS, row_name, ::epl::LossTable, ::epl::LossRow)

}  // namespace epl
