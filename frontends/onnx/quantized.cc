#include "frontends/onnx/quantized.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "frontends/onnx/importer.h"

namespace epl::onnx {
namespace {

// The bias of a layer with one output is a vector of one element; a single number is not a weight.
bool keeps_weights(const TensorType& type) {
  return is_integer(type.dtype) && dtype_bytes(type.dtype) <= 4 && type.ndim() > 0;
}

const Attribute* attribute_of(const Node& node, std::string_view name) {
  auto it = std::ranges::find(node.attributes, name, &Attribute::name);
  return it == node.attributes.end() ? nullptr : &*it;
}

// Where a scale or a zero point stands in the shape that it belongs to: everywhere, or along one dimension.
std::optional<Shape> beside(const Shape& shape, const TensorType& scale, int64_t axis) {
  if (scale.elements() == 1 && scale.ndim() <= 1) return Shape(shape.size(), 1);
  axis = axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis;
  if (scale.ndim() != 1 || axis < 0 || axis >= static_cast<int64_t>(shape.size()) ||
      scale.shape[0] != shape[static_cast<size_t>(axis)])
    return std::nullopt;
  Shape out(shape.size(), 1);
  out[static_cast<size_t>(axis)] = scale.shape[0];
  return out;
}

// f(a, b) elementwise with broadcasting, each result rounded to `dtype`.
template <class F> epl::Tensor combine(const epl::Tensor& a, const epl::Tensor& b, const TensorType& type, F&& f) {
  auto steps = [&](const Shape& shape) {
    Shape own = row_major_strides(shape), out(type.shape.size(), 0);
    for (size_t i = 0; i < shape.size(); ++i) out[out.size() - shape.size() + i] = shape[i] == 1 ? 0 : own[i];
    return out;
  };
  const Shape of_a = steps(a.shape()), of_b = steps(b.shape());
  epl::Tensor out(type);
  Shape at(type.shape.size(), 0);
  int64_t in_a = 0, in_b = 0;
  for (int64_t i = 0, count = type.elements(); i < count; ++i) {
    out.set(i, f(a.get(in_a), b.get(in_b)));
    for (size_t d = at.size(); d-- > 0;) {  // to the next element
      in_a += of_a[d];
      in_b += of_b[d];
      if (++at[d] < type.shape[d]) break;
      in_a -= of_a[d] * type.shape[d];
      in_b -= of_b[d] * type.shape[d];
      at[d] = 0;
    }
  }
  return out;
}

}  // namespace

// Kept from the first chunk to the last.
class QuantizedSource : public TensorSource {
 public:
  QuantizedSource(std::shared_ptr<const OnnxModel> model, std::string_view name)
      : model_(std::move(model)), name_(name) {}

  Status read(int64_t begin, int64_t bytes, void* target) const override {
    const std::lock_guard lock(mutex_);
    if (value_.empty()) {
      EPL_ASSIGN(value_, model_->quantized().compute(name_, model_->stored()));
    }
    std::memcpy(target, static_cast<const char*>(std::as_const(value_).data()) + begin, static_cast<size_t>(bytes));
    if (begin + bytes == value_.bytes()) value_ = epl::Tensor();
    return {};
  }

 private:
  const std::shared_ptr<const OnnxModel> model_;
  const std::string_view name_;  // in the model's bytes
  mutable std::mutex mutex_;
  mutable epl::Tensor value_;
};

QuantizedWeights::QuantizedWeights(const Graph& graph, const ParameterRule& rule) : graph_(&graph) {
  for (const Tensor& tensor : graph.initializers) {
    auto type = tensor_type(tensor);
    if (type.ok()) known_[tensor.name] = {*type, &tensor, nullptr, keeps_weights(*type)};
  }
  std::unordered_set<std::string_view> outputs;
  for (const ValueInfo& output : graph.outputs) outputs.insert(output.name);
  for (const Node& node : graph.nodes) {
    Known made;
    if (!is_standard(node.domain) || node.outputs.size() != 1 || !follow(node, made)) continue;
    const std::string_view name = node.outputs[0];
    const bool weight = made.integers && made.scaled && is_float(made.type.dtype) && !outputs.contains(name) &&
                        rule.is_weight(name, made.type);
    if (weight) {
      weights_.insert(name);
      all_.emplace_back(name, made.type);
    }
    known_[name] = std::move(made);
  }
  std::map<std::string_view, epl::Tensor> every;
  for (const auto& [name, type] : all_) every.emplace(name, epl::Tensor());
  serving_ = edits(every);
}

const QuantizedWeights::Known* QuantizedWeights::known(std::string_view name) const {
  auto it = known_.find(name);
  return it == known_.end() || weights_.contains(name)
             ? nullptr
             : &it->second;  // a weight is a parameter: what rests on it is computed
}

bool QuantizedWeights::follow(const Node& node, Known& out) const {
  std::vector<const Known*> operands;
  for (std::string_view name : node.inputs) {
    operands.push_back(name.empty() ? nullptr : known(name));
    if (!name.empty() && operands.back() == nullptr) return false;
  }
  out.node = &node;
  if (node.op_type == "Constant") {
    const Attribute* value = attribute_of(node, "value");
    if (value == nullptr || !value->t) return false;
    auto type = tensor_type(*value->t);
    if (!type.ok()) return false;
    out = {*type, value->t.get(), nullptr, keeps_weights(*type)};
    return true;
  }
  if (operands.empty() || operands[0] == nullptr) return false;
  out.integers = operands[0]->integers;
  out.scaled = operands[0]->scaled;
  out.type.shape = operands[0]->type.shape;
  if (node.op_type == "Cast" || node.op_type == "Identity") {
    const Attribute* to = attribute_of(node, "to");
    auto dtype = to == nullptr ? Result<DType>(operands[0]->type.dtype) : dtype_of(static_cast<int32_t>(to->i));
    if (!dtype.ok()) return false;
    out.type.dtype = *dtype;
    // Biases have 32 bits, but only DequantizeLinear says so.
    return out.integers && (is_float(operands[0]->type.dtype) || dtype_bytes(operands[0]->type.dtype) <= 2);
  }
  if (operands.size() < 2 || operands[1] == nullptr) return false;
  out.type.dtype = operands[1]->type.dtype;
  if (node.op_type == "DequantizeLinear") {
    const Attribute *axis = attribute_of(node, "axis"), *block = attribute_of(node, "block_size"),
                    *to = attribute_of(node, "output_dtype");
    if ((block != nullptr && block->i != 0) || (to != nullptr && to->i != 0 && to->i != data_type_of(out.type.dtype)) ||
        !is_float(out.type.dtype))
      return false;
    const int64_t along = axis == nullptr ? 1 : axis->i;
    for (size_t i = 1; i < operands.size(); ++i) {
      if (operands[i] != nullptr && !beside(out.type.shape, operands[i]->type, along)) return false;
    }
    out.scaled = true;
    return out.integers;
  }
  if (node.op_type != "Mul" && node.op_type != "Sub" && node.op_type != "Add") return false;
  auto shape = broadcast_shapes(operands[0]->type.shape, operands[1]->type.shape);
  if (!shape.ok() || operands[0]->type.dtype != operands[1]->type.dtype || !is_float(out.type.dtype)) return false;
  out.type.shape = *shape;
  out.integers = operands[0]->integers || operands[1]->integers;
  out.scaled = node.op_type == "Mul" || operands[0]->scaled || operands[1]->scaled;
  return out.integers && element_count(*shape) == std::max(operands[0]->type.elements(), operands[1]->type.elements());
}

Result<epl::Tensor> QuantizedWeights::compute(std::string_view name,
                                              const std::shared_ptr<const ModelBytes>& bytes) const {
  const Known& made = known_.at(name);
  if (made.stored != nullptr) return tensor_value(*made.stored, bytes);
  const Node& node = *made.node;
  std::vector<epl::Tensor> x;
  for (std::string_view input : node.inputs) {
    x.emplace_back();
    if (input.empty()) continue;
    EPL_ASSIGN(x.back(), compute(input, bytes));
  }
  if (node.op_type == "DequantizeLinear") {
    const Attribute* axis = attribute_of(node, "axis");
    const int64_t along = axis == nullptr ? 1 : axis->i;
    epl::Tensor shifted = x[0];
    if (x.size() > 2 && !x[2].empty()) {
      shifted = combine(x[0], x[2].reshaped(*beside(made.type.shape, x[2].type(), along)),
                        {DType::i32, made.type.shape}, [](double q, double zero) { return q - zero; });
    }
    return combine(shifted, x[1].reshaped(*beside(made.type.shape, x[1].type(), along)), made.type,
                   [&](double q, double scale) {
                     return (made.type.dtype == DType::f32 ? static_cast<double>(static_cast<float>(q)) : q) * scale;
                   });
  }
  if (x.size() == 1)
    return combine(x[0], epl::Tensor::scalar(x[0].dtype(), 0), made.type, [](double q, double) { return q; });
  const std::string_view op = node.op_type;
  return combine(x[0], x[1], made.type, [op](double a, double b) {
    return op == "Mul" ? a * b : op == "Sub" ? a - b : a + b;
  });
}

epl::Tensor QuantizedWeights::value(std::string_view name, std::shared_ptr<const OnnxModel> model) const {
  const auto found = known_.find(name);
  return epl::Tensor(found->second.type, std::make_shared<QuantizedSource>(std::move(model), found->first));
}

DequantizedEdits QuantizedWeights::edits(const std::map<std::string_view, epl::Tensor>& values) const {
  DequantizedEdits out;
  out.added = values;
  // How often a value is read. A value that only removed nodes read is removed too.
  std::unordered_map<std::string_view, int64_t> reads;
  auto count = [&](const Node& node, auto& self) -> void {
    for (std::string_view input : node.inputs) ++reads[input];
    for (const Attribute& a : node.attributes) {
      if (!a.g) continue;
      for (const Node& inner : a.g->nodes) self(inner, self);
      for (const ValueInfo& output : a.g->outputs) ++reads[output.name];
    }
  };
  for (const Node& node : graph_->nodes) count(node, count);
  for (const ValueInfo& output : graph_->outputs) ++reads[output.name];
  auto drop = [&](std::string_view name, auto& self) -> void {
    const Known& made = known_.at(name);
    if (made.node == nullptr) {
      out.leaves.insert(name);
      return;
    }
    out.nodes.insert(made.node->at);
    for (std::string_view input : made.node->inputs) {
      if (!input.empty() && --reads[input] == 0 && known_.contains(input)) self(input, self);
    }
  };
  for (const auto& [name, value] : values) drop(name, drop);
  return out;
}

}  // namespace epl::onnx
