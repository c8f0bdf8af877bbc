// Which initialisers are parameters. A file does not say; exporters put weights, masks and tables side by side.
#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "frontends/onnx/importer.h"

namespace epl::onnx {
namespace {

// Removes the digits at the end; false when there is none.
bool cut_number(std::string_view& name) {
  const size_t length = name.size(), last = name.find_last_not_of("0123456789");
  name = name.substr(0, last == std::string_view::npos ? 0 : last + 1);
  return name.size() < length;
}

// "val_7", "onnx::MatMul_12", "_to_copy_3", "12", "/layer/Reshape_output_0", "x.Constant_1_output_0".
bool made_by_exporter(std::string_view name) {
  if (name.starts_with("onnx::") || name.starts_with("_to_copy") || name.starts_with("/")) return true;
  if (!cut_number(name)) return false;
  if (name.empty() || name == "val_" || name == "_val_") return true;
  if (!name.ends_with("_output_")) return false;
  name.remove_suffix(std::string_view("_output_").size());
  return cut_number(name) && name.ends_with("Constant_");
}

bool known_buffer(std::string_view name) {
  for (std::string_view tail :
       {"inv_freq", "original_inv_freq", "running_mean", "running_var", "position_ids", "masked_bias"}) {
    if (name == tail || (name.ends_with(tail) && name[name.size() - tail.size() - 1] == '.')) return true;
  }
  return false;
}

// PyTorch's names, and PaddlePaddle's.
bool named_as_weight(std::string_view name) {
  return name.ends_with(".bias") || name.ends_with(".weight") || name.ends_with(".w_0") || name.ends_with(".b_0");
}

// A mask holds numbers that weights do not have.
bool looks_like_mask(const epl::Tensor& value) {
  int64_t sample = std::min<int64_t>(value.elements(), 1 << 16);
  for (int64_t i = 0; i < sample; ++i) {
    if (!(std::fabs(value.get(i)) < 1e9)) return true;
  }
  return false;
}

// Which operands of a node are running statistics; a function's are those that its nodes take as such.
class Statistics {
 public:
  explicit Statistics(const OnnxModel& model) : model_(model) {}

  std::vector<std::string_view> of(const Node& node) {
    std::vector<std::string_view> out;
    auto add = [&](size_t i) {
      if (i < node.inputs.size() && !node.inputs[i].empty()) out.push_back(node.inputs[i]);
    };
    if (const Function* function = model_.function(node.domain, node.op_type, node.overload)) {
      for (size_t i : of(*function)) add(i);
    } else if (const OnnxOpRow* row = onnx_op_table().find(node.domain, node.op_type, model_.opset(node.domain))) {
      for (int i : row->statistics) add(static_cast<size_t>(i));
    }
    return out;
  }

 private:
  const std::vector<size_t>& of(const Function& function) {
    auto [it, inserted] = known_.try_emplace(&function);
    if (!inserted) return it->second;  // a function that calls itself has none so far; it is refused elsewhere
    std::vector<size_t> found;
    for (const Node& node : function.nodes) {
      for (std::string_view name : of(node)) {
        auto input = std::ranges::find(function.inputs, name);
        if (input != function.inputs.end()) found.push_back(static_cast<size_t>(input - function.inputs.begin()));
      }
    }
    return known_[&function] = std::move(found);
  }

  const OnnxModel& model_;
  std::map<const Function*, std::vector<size_t>> known_;
};

}  // namespace

ParameterRule::ParameterRule(const OnnxModel& model) : model_(model) {
  for (const Tensor& tensor : model.file().graph.initializers) {
    auto dtype = dtype_of(tensor.data_type);
    if (!dtype.ok() || !is_float(*dtype) || tensor.dims.empty()) continue;
    dotted_ = dotted_ || tensor.name.find('.') != std::string_view::npos;
  }
  Statistics statistics(model);
  std::unordered_set<std::string_view> products;  // results of products and convolutions
  std::unordered_map<std::string_view, std::string_view> before_reshape;
  auto note = [&](const Node& node, auto& self) -> void {
    for (const Attribute& a : node.attributes) {
      if (!a.g) continue;
      for (const Node& inner : a.g->nodes) self(inner, self);
      if (node.op_type != "Loop" && node.op_type != "Scan") continue;
      // What a loop is given takes the places that its graph's inputs take.
      const size_t before = node.op_type == "Scan" && model.opset("") < 9 ? 1 : 0;
      for (size_t k = 0; k < a.g->inputs.size() && k + before < node.inputs.size(); ++k) {
        for (auto* places : {&statistics_, &structural_, &weights_, &shifts_}) {
          if (places->contains(a.g->inputs[k].name)) places->insert(node.inputs[k + before]);
        }
      }
    }
    for (std::string_view name : statistics.of(node)) statistics_.insert(name);
    if (const OnnxOpRow* row = onnx_op_table().find(node.domain, node.op_type, model.opset(node.domain))) {
      const auto insert = [&](const std::vector<int>& operands, auto& names) {
        for (int i : operands) {
          if (i < static_cast<int>(node.inputs.size())) names.insert(node.inputs[i]);
        }
      };
      insert(row->structural, structural_);
      insert(row->weights, weights_);
      if (row->product && !node.outputs.empty()) products.insert(node.outputs[0]);
    }
    const std::string_view op = node.op_type;
    if (op == "Reshape" && node.inputs.size() == 2 && !node.outputs.empty())
      before_reshape.emplace(node.outputs[0], node.inputs[0]);
    if (op == "Add" && node.inputs.size() == 2) {
      for (size_t i : {0, 1}) {
        auto reshaped = before_reshape.find(node.inputs[1 - i]);
        if (products.contains(node.inputs[i]))
          shifts_.insert(reshaped == before_reshape.end() ? node.inputs[1 - i] : reshaped->second);
      }
    }
  };
  for (const Node& node : model.file().graph.nodes) note(node, note);
}

bool ParameterRule::is_weight(std::string_view name, const TensorType& type) const {
  if (weights_.contains(name) || statistics_.contains(name)) return true;
  const bool vector = type.elements() == *std::ranges::max_element(type.shape);  // but for dimensions of one
  return vector && (shifts_.contains(name) || named_as_weight(name));
}

ParameterVerdict ParameterRule::judge(std::string_view name, const Tensor& tensor, bool placed) const {
  auto type = tensor_type(tensor);
  if (!type.ok()) return {false, type.status().message()};
  if (!is_float(type->dtype)) return {false, cat("its type is ", type->text())};
  if (model_.quantized().only_serves(name)) return {false, "it belongs to weights that are stored as integers"};
  if (statistics_.contains(name)) return {false, "it is a running statistic"};
  if (structural_.contains(name)) return {false, "it decides a shape"};
  if (known_buffer(name)) return {false, "its name is that of a buffer"};
  // The bias of a layer with one output is a vector of one element; other single numbers are usually constants.
  if (type->elements() <= 1 && (type->shape.empty() || made_by_exporter(name) || !(placed || named_as_weight(name)))) {
    return {false, "it has one element"};
  }
  if (made_by_exporter(name) && !placed) return {false, "it is a constant that the exporter made", true};
  if (dotted_ && name.find('.') == std::string_view::npos && !placed) {
    return {false, "its name is not like those of the parameters, and it is not used as a weight", true};
  }
  if (made_by_exporter(name) || name.find('.') == std::string_view::npos) {
    auto value = tensor_value(tensor, model_.stored());
    if (value.ok() && looks_like_mask(*value)) return {false, "it holds the numbers of a mask", false, placed};
  }
  return {true, ""};
}

}  // namespace epl::onnx
