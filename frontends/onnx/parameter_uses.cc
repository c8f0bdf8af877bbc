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
  const Node* only(std::string_view value) const {
    const auto found = of.find(value);
    return found == of.end() || found->second.size() != 1 ? nullptr : found->second.front();
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

using Makers = std::unordered_map<std::string_view, const Node*>;

Makers makers_of(const Graph& graph) {
  Makers makers;
  for (const Node& node : graph.nodes) {
    for (std::string_view output : node.outputs) makers.emplace(output, &node);
  }
  return makers;
}

// Whether a logarithm is among the last few nodes before a value.
bool has_logarithm(const Makers& makers, std::string_view value) {
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

// Whether a value is made of two inputs of the graph: of samples and their targets.
bool takes_two_inputs(const Graph& graph, const Makers& makers, std::string_view value) {
  std::unordered_set<std::string_view> inputs, seen;
  for (const ValueInfo& input : graph.inputs) inputs.insert(input.name);
  for (const Tensor& tensor : graph.initializers) inputs.erase(tensor.name);  // older files list both
  std::vector<std::string_view> open = {value};
  int taken = 0;
  while (!open.empty() && taken < 2) {
    const std::string_view next = open.back();
    open.pop_back();
    if (next.empty() || !seen.insert(next).second) continue;
    taken += inputs.contains(next) ? 1 : 0;
    if (const auto maker = makers.find(next); maker != makers.end())
      open.insert(open.end(), maker->second->inputs.begin(), maker->second->inputs.end());
  }
  return taken > 1;
}

// How a value becomes an output of the graph: not by sums alone; by one sum or mean of all of it; or by several sums,
// and then as a term among others, scaled or not.
enum class Summed : uint8_t { no, at_once, in_steps };

Summed summed_up(Users& users, std::string_view value) {
  constexpr int far = 24;
  bool reduced = false, over_all = false;  // over some axes, and over all
  for (int step = 0; step < far; ++step) {
    const std::vector<const Node*>& of = users.of[value];
    const bool given = std::ranges::find(of, nullptr) != of.end();
    if (given && over_all) return step == 1 ? Summed::at_once : Summed::in_steps;
    if (of.size() != 1 || given || of[0]->outputs.empty()) return Summed::no;
    const Node& node = *of[0];
    const std::string_view op = node.op_type;
    if (op == "ReduceMean" || op == "ReduceSum") {
      const bool axes = node.inputs.size() > 1 || std::ranges::any_of(node.attributes, [](const Attribute& attribute) {
                          return attribute.name == "axes";
                        });
      reduced = true;
      over_all = over_all || !axes;
    } else if (combines(op)) {
      if (node.inputs.size() != 2) return Summed::no;
      const bool fixed = std::ranges::all_of(
          node.inputs, [&](std::string_view input) { return input == value || users.fixed.contains(input); });
      const bool scales = (op == "Mul" || op == "Div") && fixed && node.inputs[0] != node.inputs[1];
      if (!scales && !reduced) return Summed::no;
      if (op == "Div" && node.inputs[0] != value) return Summed::no;
    } else if (op != "Neg" && op != "Identity" && op != "Cast" && op != "Squeeze" && op != "Sum") {
      return Summed::no;
    }
    value = node.outputs[0];
  }
  return Summed::no;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// Whether one of the words of a name's last part, "y_mean" of "scaler.y_mean", is one of these.
bool has_word(std::string_view name, std::string_view words) {
  const std::string own = lower(name.substr(name.rfind('.') + 1));
  for (size_t at = 0; at < own.size();) {
    const size_t end = std::min(own.find('_', at), own.size());
    const std::string word = own.substr(at, end - at);
    if (!word.empty() && words.find(" " + word + " ") != std::string_view::npos) return true;
    at = end + 1;
  }
  return false;
}
constexpr std::string_view centres = " mean means mu avg average center centre loc offset shift min ";
constexpr std::string_view spreads = " std stds stddev sigma var variance scale scales range sd ";
// Of numbers that a layer may learn as well, "scale" and "shift", a layer's output says less than an input does.
constexpr std::string_view centres_of_outputs = " mean means mu avg average ";
constexpr std::string_view spreads_of_outputs = " std stds stddev sigma var variance sd ";

// The initialiser that an operand is, or is the root or a guarded value of; empty if there is none.
std::string_view stored_under(const std::unordered_set<std::string_view>& stored, const Users& users,
                              const Makers& makers, std::string_view value) {
  constexpr int far = 6;
  for (int step = 0; step < far; ++step) {
    if (stored.contains(value)) return value;
    const auto maker = makers.find(value);
    if (maker == makers.end() || maker->second->inputs.empty()) return {};
    const Node& node = *maker->second;
    const std::string_view op = node.op_type;
    if (op == "Add" || op == "Max" || op == "Clip") {  // beside what keeps it away from zero
      const auto others = [&](std::string_view input) {
        return users.fixed.contains(input) && !stored.contains(input);
      };
      const auto own = std::ranges::find_if_not(node.inputs, others);
      if (own == node.inputs.end()) return {};
      value = *own;
    } else if (op == "Sqrt" || moves(op)) {
      value = node.inputs[0];
    } else {
      return {};
    }
  }
  return {};
}

}  // namespace

std::unordered_set<std::string_view> statistics_of_data(const OnnxModel& model) {
  const Graph& graph = model.file().graph;
  const Users users(graph);
  const Makers makers = makers_of(graph);
  std::unordered_set<std::string_view> stored, raw, centred, scaled, found, outputs;
  for (const Tensor& tensor : graph.initializers) {
    auto dtype = dtype_of(tensor.data_type);
    if (dtype.ok() && is_float(*dtype) && !tensor.dims.empty()) stored.insert(tensor.name);
  }
  for (const ValueInfo& input : graph.inputs) {
    if (!stored.contains(input.name)) raw.insert(input.name);
  }
  for (const ValueInfo& output : graph.outputs) outputs.insert(output.name);
  std::unordered_map<std::string_view, std::string_view> scaled_by;
  for (const Node& node : graph.nodes) {
    if (node.inputs.empty() || node.outputs.empty()) continue;
    const std::string_view op = node.op_type, x = node.inputs[0], y = node.outputs[0];
    if (moves(op) && raw.contains(x)) raw.insert(y);
    if (!combines(op) || node.inputs.size() != 2) continue;
    // (x - mean) / std of what the model is given.
    const std::string_view by = stored_under(stored, users, makers, node.inputs[1]);
    if (op == "Sub" && raw.contains(x) && !by.empty() && has_word(by, centres)) {
      centred.insert(y);
      scaled_by[y] = by;
    }
    if (op == "Div" && centred.contains(x) && !by.empty() && has_word(by, spreads)) found.insert({by, scaled_by[x]});
    // y std + mean of what the model gives.
    for (size_t k : {0, 1}) {
      const std::string_view with = node.inputs[k], other = node.inputs[1 - k];
      if (op == "Mul" && stored.contains(with) && has_word(with, spreads_of_outputs)) {
        scaled.insert(y);
        scaled_by[y] = with;
      }
      if (op == "Add" && outputs.contains(y) && scaled.contains(other) && stored.contains(with) &&
          has_word(with, centres_of_outputs))
        found.insert({with, scaled_by[other]});
    }
  }
  return found;
}

std::unordered_set<std::string_view> weights_of_terms(const OnnxModel& model) {
  const Graph& graph = model.file().graph;
  Users users(graph);
  const Makers makers = makers_of(graph);
  std::unordered_set<std::string_view> found;
  for (const Tensor& tensor : graph.initializers) {
    const Node* product = users.only(tensor.name);
    if (product == nullptr || product->op_type != "Mul" || product->inputs.size() != 2) continue;
    const std::string_view terms = product->inputs[product->inputs[0] == tensor.name ? 1 : 0];
    if (!has_logarithm(makers, terms)) continue;
    const Summed summed = summed_up(users, product->outputs[0]);
    // What only one mean away is the model's number is a loss; of what goes through more the targets tell.
    if (summed == Summed::at_once || (summed == Summed::in_steps && takes_two_inputs(graph, makers, terms)))
      found.insert(tensor.name);
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
