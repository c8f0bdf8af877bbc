// Losses: rows that turn a model's outputs into one scalar, the mean over the whole global batch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/ir/op.h"

namespace epl {

struct LossSpec {
  std::string name = "softmax_cross_entropy";  // a row, or "output:<name>": a scalar output of the graph
  std::string output;                          // which output of the model it is applied to; empty: the first
  Attributes options;                          // as the row declares, for example {ignore_index=-100}
  // Type of the target the host will pass. Needed where the shape of the output does not determine it.
  std::optional<TensorType> target;
};

// Name of the graph input that holds what the loss compares with.
inline constexpr std::string_view target_name = "target";

// What a row works with. `target` adds the graph input "target" (a sample dimension 0) and returns it.
class LossBuilder {
 public:
  LossBuilder(Builder& builder, Var output, const Attributes& options, const std::optional<TensorType>& target)
      : b(builder), output(output), options(options), wanted_target_(target) {}
  Builder& b;
  Var output;
  const Attributes& options;
  // The target, of type `fallback` unless the host told another.
  Var target(const TensorType& fallback);
  const std::optional<TensorType>& wanted_target() const { return wanted_target_; }

 private:
  const std::optional<TensorType>& wanted_target_;
};

struct LossRow {
  std::string name;
  std::string doc;
  std::vector<AttributeSpec> options;
  Result<Var> (*build)(LossBuilder&) = nullptr;  // the scalar, f32[] (or the output's element type)
};
struct LossTable {
  std::vector<LossRow> rows;
};
void fill_loss_table(LossTable& table);  // generated
const LossTable& loss_table();

// Adds the loss to a forward graph, with its target input; returns the scalar.
Result<Value> add_loss(Graph& graph, const LossSpec& spec);

#define EPL_LOSS(row_name)                                                                             \
  static ::epl::LossRow epl_loss_##row_name();                                                         \
  void EPL_LOSS_row_##row_name(::epl::LossTable& table);                                               \
  void EPL_LOSS_row_##row_name(::epl::LossTable& table) {                                              \
    table.rows.push_back(epl_loss_##row_name());                                                       \
    table.rows.back().name = #row_name;                                                                \
  }                                                                                                    \
  static ::epl::LossRow epl_loss_##row_name()

}  // namespace epl
