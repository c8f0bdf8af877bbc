// See parameter_uses.h.
#include "frontends/onnx/parameter_uses.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <vector>

#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {
namespace {

bool combines(std::string_view op) { return op == "Add" || op == "Sub" || op == "Mul" || op == "Div"; }

// Operators whose result has the features of an operand, each made of the same one alone or of all of them.
bool keeps_features(std::string_view op) {
  static constexpr std::string_view ops[] = {"Identity",
                                             "Cast",
                                             "Dropout",
                                             "Relu",
                                             "Tanh",
                                             "Gelu",
                                             "Elu",
                                             "Selu",
                                             "Celu",
                                             "LeakyRelu",
                                             "PRelu",
                                             "Erf",
                                             "Softplus",
                                             "Mish",
                                             "HardSwish",
                                             "Swish",
                                             "Neg",
                                             "Abs",
                                             "Clip",
                                             "LayerNormalization",
                                             "Softsign",
                                             "RMSNormalization",
                                             "BatchNormalization",
                                             "GroupNormalization",
                                             "InstanceNormalization"};
  return combines(op) || std::ranges::find(ops, op) != std::end(ops);
}

bool moves(std::string_view op) {
  static constexpr std::string_view ops[] = {"Unsqueeze", "Squeeze",  "Transpose", "Reshape",
                                             "Cast",      "Identity", "Flatten"};
  return std::ranges::find(ops, op) != std::end(ops);
}

// Who takes a value (null: it is an output of the graph), and which values are the same for all inputs.
struct Users {
  explicit Users(const Graph& graph) {
    for (const Tensor& tensor : graph.initializers) fixed.insert(tensor.name);
    for (const Node& node : graph.nodes) {
      for (std::string_view input : node.inputs) of[input].push_back(&node);
      if (node.op_type == "Constant" && !node.outputs.empty()) fixed.insert(node.outputs[0]);
    }
    for (const ValueInfo& output : graph.outputs) of[output.name].push_back(nullptr);
  }
  std::unordered_map<std::string_view, std::vector<const Node*>> of;
  std::unordered_set<std::string_view> fixed;
};

// The tables of random features: `table`, and phases that are added to its products. Empty if it is no such table.
std::vector<std::string_view> waves_of(Users& users, std::string_view table) {
  constexpr size_t far = 64;  // further than any model goes
  bool sine = false, cosine = false, multiplied = false;
  std::vector<std::string_view> reached = {table}, tables = {table};
  for (size_t k = 0; k < reached.size(); ++k) {
    const std::string_view value = reached[k];
    for (const Node* node : users.of[value]) {
      if (node == nullptr || node->outputs.empty() || reached.size() > far) return {};
      const std::string_view op = node->op_type;
      sine = sine || op == "Sin";
      cosine = cosine || op == "Cos";
      if (op == "Sin" || op == "Cos") continue;
      const std::string_view other =
          node->inputs.size() == 2 ? node->inputs[node->inputs[0] == value ? 1 : 0] : std::string_view();
      const bool fixed = users.fixed.contains(other);
      const bool by_constant = fixed && (op == "Mul" || op == "Div"), phase = fixed && multiplied && op == "Add";
      const bool product = !by_constant && (op == "MatMul" || op == "Gemm" || op == "Mul");
      if (!(moves(op) || by_constant || phase || (product && !multiplied))) return {};
      multiplied = multiplied || product;
      if (phase) tables.push_back(other);
      reached.push_back(node->outputs[0]);
    }
  }
  return cosine && multiplied && (sine || tables.size() > 1) ? tables : std::vector<std::string_view>();
}

// Whether a logarithm is among the last few nodes before a value.
bool has_logarithm(const std::unordered_map<std::string_view, const Node*>& makers, std::string_view value) {
  constexpr size_t far = 24;
  std::vector<std::string_view> reached = {value};
  for (size_t k = 0; k < reached.size() && k < far; ++k) {
    const auto maker = makers.find(reached[k]);
    if (maker == makers.end()) continue;
    const std::string_view op = maker->second->op_type;
    if (op == "Log" || op == "Softplus" || op == "LogSoftmax") return true;
    if (!combines(op) && !keeps_features(op) && op != "Exp" && op != "Max" && op != "Min") continue;
    for (std::string_view input : maker->second->inputs) reached.push_back(input);
  }
  return false;
}

}  // namespace

std::unordered_set<std::string_view> weights_of_terms(const OnnxModel& model) {
  const Graph& graph = model.file().graph;
  Users users(graph);
  std::unordered_map<std::string_view, const Node*> makers;
  for (const Node& node : graph.nodes) {
    for (std::string_view output : node.outputs) makers.emplace(output, &node);
  }
  const auto only_user = [&](std::string_view value) -> const Node* {
    const auto found = users.of.find(value);
    return found == users.of.end() || found->second.size() != 1 ? nullptr : found->second.front();
  };
  std::unordered_set<std::string_view> found;
  for (const Tensor& tensor : graph.initializers) {
    const Node* product = only_user(tensor.name);
    if (product == nullptr || product->op_type != "Mul" || product->inputs.size() != 2) continue;
    const Node* mean = only_user(product->outputs[0]);
    const bool reduces = mean != nullptr && (mean->op_type == "ReduceMean" || mean->op_type == "ReduceSum");
    if (!reduces || mean->inputs.size() != 1) continue;
    if (std::ranges::any_of(mean->attributes, [](const Attribute& a) { return a.name == "axes"; })) continue;
    const auto given = users.of.find(mean->outputs[0]);
    if (given == users.of.end() || std::ranges::find(given->second, nullptr) == given->second.end()) continue;
    if (has_logarithm(makers, product->inputs[product->inputs[0] == tensor.name ? 1 : 0])) found.insert(tensor.name);
  }
  return found;
}

std::unordered_set<std::string_view> scales_of_features(const OnnxModel& model) {
  std::unordered_set<std::string_view> found;
  std::unordered_map<std::string_view, std::vector<int64_t>> features;  // how many a value may have
  std::unordered_map<std::string_view, const Tensor*> initialisers;
  for (const Tensor& tensor : model.file().graph.initializers) initialisers.emplace(tensor.name, &tensor);
  for (const ModelPort& port : model.inputs()) {
    if (!port.dims.empty() && port.dims.back().size > 1) features[port.name] = {port.dims.back().size};
  }
  for (const Node& node : model.file().graph.nodes) {
    if (node.outputs.empty()) continue;
    const OnnxOpRow* row = onnx_op_table().find(node.domain, node.op_type, model.opset(node.domain));
    std::vector<int64_t> own;
    for (std::string_view input : node.inputs) {
      const auto weight = initialisers.find(input);
      const auto known = features.find(input);
      if (!own.empty()) break;
      if (row && row->product && weight != initialisers.end()) own = weight->second->dims;
      if (keeps_features(node.op_type) && known != features.end()) own = known->second;
    }
    for (std::string_view input : node.inputs) {
      const auto vector = initialisers.find(input);
      if (!combines(node.op_type) || vector == initialisers.end()) continue;
      int64_t elements = 1;
      for (int64_t size : vector->second->dims) elements *= size;
      if (std::ranges::find(own, elements) != own.end()) found.insert(input);
    }
    if (!own.empty()) features[node.outputs[0]] = std::move(own);
  }
  return found;
}

std::unordered_set<std::string_view> random_features(const OnnxModel& model) {
  std::unordered_set<std::string_view> found;
  Users users(model.file().graph);
  for (const Tensor& tensor : model.file().graph.initializers) {
    for (std::string_view table : waves_of(users, tensor.name)) found.insert(table);
  }
  return found;
}

}  // namespace epl::onnx
