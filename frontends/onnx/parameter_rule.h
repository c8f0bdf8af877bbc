// Which initialisers are parameters. Most files do not say: exporters put weights, masks and tables side by side.
//
// PyTorch's newer exporter says it of every initialiser. Its older one keeps the names of the module's parameters and
// buffers, in their order, and gives its own constants other names. Of all other files names, places and numbers tell.
// What is left out though it looks as if PyTorch would train it is told (weight_findings.h).
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "frontends/onnx/model.h"

namespace epl::onnx {

// Whether an initialiser is a parameter; else why not.
struct ParameterVerdict {
  bool parameter = false;
  std::string reason;
  bool left_out = false;   // not a parameter by its name alone
  bool mask = false;       // not a parameter by its numbers alone: it stands where weights do
  std::string table = {};  // what its numbers look like (table_kind), where they alone speak against a parameter
};

class ParameterRule {
 public:
  explicit ParameterRule(const OnnxModel& model);
  ParameterVerdict judge(const Tensor& tensor) const {
    return judge(tensor.name, tensor, weights_.contains(tensor.name));
  }
  // Of a tensor under another name than its own; `placed`: it stands where weights do.
  ParameterVerdict judge(std::string_view name, const Tensor& tensor, bool placed) const;
  // Whether a tensor that a node holds is a weight or a running statistic, by what takes it, or by its name.
  bool is_weight(std::string_view name, const Tensor& tensor, const TensorType& type) const;
  bool is_weight(std::string_view name, const TensorType& type) const;
  bool is_statistic(std::string_view name) const { return statistics_.contains(name); }
  // Whether something computes with the value, so that a gradient could come to it.
  bool is_learnable_position(std::string_view name) const { return computed_with_.contains(name); }
  bool scales_features(std::string_view name) const { return by_feature_.contains(name); }
  // Names are those of the module's parameters and buffers, or made by the exporter.
  bool keeps_names() const { return pytorch_; }
  bool made_by_exporter(std::string_view name) const;  // it is no parameter or buffer of the exported module
  // Whether nothing but its place speaks for a parameter, and its name is one that people give to what is fixed.
  bool may_be_buffer(std::string_view name) const;
  bool is_said_parameter(std::string_view name) const { return said(name) == Kind::parameter; }
  // Parameters of the exported module, where the file says which those are.
  const std::vector<std::string_view>& said_parameters() const { return said_parameters_; }

 private:
  enum class Kind : uint8_t { unknown, parameter, buffer };
  Kind said(std::string_view name) const;
  Kind by_order(std::string_view name) const;
  void read_signature(std::string_view text);
  void look_at_uses();
  void look_at_order();
  ParameterVerdict judge_single(std::string_view name, const TensorType& type, bool placed) const;
  ParameterVerdict judge_numbers(std::string_view name, const Tensor& tensor, const TensorType& type, bool placed,
                                 bool made) const;

  const OnnxModel& model_;
  std::unordered_map<std::string_view, Kind> said_;     // by the exporter
  std::unordered_map<std::string_view, Kind> ordered_;  // by where it stands among the initialisers of its module
  std::vector<std::string_view> said_parameters_;
  std::unordered_set<std::string_view> statistics_;     // operands that are running statistics
  std::unordered_set<std::string_view> structural_;     // operands that are settings: shapes, scales of a rounding
  std::unordered_set<std::string_view> weights_;        // operands in the place of a weight (OnnxOpRow::weights)
  std::unordered_set<std::string_view> shifts_;         // operands that are added to a product or a convolution
  std::unordered_set<std::string_view> by_feature_;     // operands with a number for each feature of the other operand
  std::unordered_set<std::string_view> of_terms_;       // weights of the terms of a loss inside the model
  std::unordered_set<std::string_view> of_data_;        // means and spreads of what the model is given or gives
  std::unordered_set<std::string_view> waves_;          // tables of which only sines and cosines are taken
  std::unordered_set<std::string_view> computed_with_;  // operands of nodes that compute, but for small constants
  bool operations_ = false;                             // constants may have the names of operations
  bool dotted_ = false;                                 // some float initialisers have names like "block.0.weight"
  bool pytorch_ = false;  // names are those of the module's parameters and buffers, unless the exporter made them
};

}  // namespace epl::onnx
