// What tells one model from another whatever its weights are. The fingerprint is a number of its operators, their
// attributes, how they hang together, and the integers among its initialisers, which say how many heads there are and
// how tensors are reshaped. Constants are told beside it, each by its name, so that a message can say which one
// differs, and so that checkpoints from before they were told are still compared by the rest.
#include <algorithm>
#include <cstdio>

#include "core/base/hash.h"
#include "core/base/text.h"
#include "frontends/onnx/importer.h"
#include "frontends/onnx/model.h"

namespace epl::onnx {
namespace {

constexpr int64_t max_bytes_of_numbers = 4096;
constexpr size_t max_constants_by_name = 512;

class Fingerprint {
 public:
  explicit Fingerprint(const OnnxModel& model) : model_(model) {}

  uint64_t value() {
    const File& file = model_.file();
    add(file.graph);
    for (const Function& function : file.functions) {
      add(function.name);
      add(function.domain);
      for (const auto* names : {&function.inputs, &function.outputs, &function.attributes}) add(*names);
      for (const Node& node : function.nodes) add(node);
    }
    return hash_.value();
  }

 private:
  // Lengths are part of it, so that no two lists of texts look alike.
  void number(int64_t n) { hash_.add(&n, sizeof n); }
  void add(std::string_view text) {
    number(static_cast<int64_t>(text.size()));
    hash_.add(text.data(), text.size());
  }
  void add(const std::vector<std::string_view>& texts) {
    number(static_cast<int64_t>(texts.size()));
    for (std::string_view text : texts) add(text);
  }

  void add(const Graph& graph) {
    for (const Node& node : graph.nodes) add(node);
    for (const Tensor& tensor : graph.initializers) add(tensor);
    for (const auto* ports : {&graph.inputs, &graph.outputs}) {
      number(static_cast<int64_t>(ports->size()));
      for (const ValueInfo& port : *ports) add(port.name);
    }
  }

  void add(const Tensor& tensor) {
    add(tensor.name);
    number(tensor.data_type);
    for (int64_t dim : tensor.dims) number(dim);
    auto type = tensor_type(tensor);
    if (!type.ok() || is_float(type->dtype) || type->bytes() > max_bytes_of_numbers) return;
    auto value = tensor_value(tensor, model_.stored());
    if (value.ok()) hash_.add(value->data(), static_cast<size_t>(value->bytes()));
  }

  void add(const Node& node) {
    for (std::string_view text : {node.op_type, node.domain, node.overload}) add(text);
    add(node.inputs);
    add(node.outputs);
    number(static_cast<int64_t>(node.attributes.size()));
    for (const Attribute& a : node.attributes) add(a);
  }

 public:
  void add(const Attribute& a) {
    for (std::string_view text : {a.name, a.ref, a.s}) add(text);
    hash_.add(&a.f, sizeof a.f);
    number(a.i);
    for (float f : a.floats) hash_.add(&f, sizeof f);
    for (int64_t i : a.ints) number(i);
    add(a.strings);
    if (a.t) add(*a.t);
    if (a.g) add(*a.g);
  }
  uint64_t hash() const { return hash_.value(); }

 private:
  const OnnxModel& model_;
  Hash64 hash_;
};

std::string hex_of(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// Tensors that are neither trained nor learnt, wherever the file holds them.
class Constants {
 public:
  Constants(const OnnxModel& model, const Binding& binding) : model_(model), binding_(binding), rule_(model) {}

  std::map<std::string, std::string> all() {
    const File& file = model_.file();
    for (const OpsetId& id : file.opsets) {
      out_[cat("opset ", is_standard(id.domain) ? std::string_view("ai.onnx") : id.domain)] = cat(id.version);
    }
    add(file.graph, "");
    for (const Function& function : file.functions) {
      const std::string path = cat(function.domain, ".", function.name, "/");
      for (const Attribute& a : function.attribute_defaults) {
        Fingerprint one(model_);
        one.add(a);
        out_[cat("default ", path, a.name)] = hex_of(one.hash());
        if (a.t) add(cat(path, a.name), a.name, *a.t, false);
      }
      add(function.nodes, path);
    }
    if (besides_) out_["constants besides"] = hex_of(rest_.value());
    return std::move(out_);
  }

 private:
  void add(const Graph& graph, const std::string& path) {
    for (const Tensor& tensor : graph.initializers) add(cat(path, tensor.name), tensor.name, tensor, !path.empty());
    add(graph.nodes, path);
  }

  void add(const std::vector<Node>& nodes, const std::string& path) {
    for (const Node& node : nodes) {
      const std::string_view made = node.outputs.empty() ? node.name : node.outputs[0];
      for (const Attribute& a : node.attributes) {
        if (a.t) add(node.op_type == "Constant" ? cat(path, made) : cat(path, made, ".", a.name), made, *a.t, true);
        if (a.g) add(*a.g, cat(path, node.name.empty() ? made : node.name, "/"));
      }
    }
  }

  // `name` is that of the value, `known_as` tells it from those of other graphs.
  void add(const std::string& known_as, std::string_view name, const Tensor& tensor, bool in_node) {
    auto type = tensor_type(tensor);
    if (!type.ok() || model_.quantized().only_serves(name)) return;
    if (is_float(type->dtype) ? is_state(name, tensor, in_node) : type->bytes() <= max_bytes_of_numbers) return;
    auto value = tensor_value(tensor, model_.stored());
    if (!value.ok()) return;
    const auto bytes = static_cast<size_t>(value->bytes());
    if (out_.size() >= max_constants_by_name) {
      besides_ = true;
      rest_.add(known_as.c_str(), known_as.size() + 1);
      rest_.add(value->data(), bytes);
      return;
    }
    Hash64 hash;
    for (int64_t dim : value->shape()) hash.add(&dim, sizeof dim);
    hash.add(value->data(), bytes);
    out_[cat("constant ", known_as)] = value->elements() == 1 ? number_text(value->get(0)) : hex_of(hash.value());
  }

  // Whether a checkpoint holds it.
  bool is_state(std::string_view name, const Tensor& tensor, bool in_node) const {
    const std::string* weight = in_node ? model_.weight_name(tensor) : nullptr;
    if (in_node && !weight) return false;
    const std::string known_as = weight ? *weight : std::string(name);
    return rule_.is_statistic(name) || (in_node ? rule_.judge(name, tensor, true) : rule_.judge(tensor)).parameter ||
           std::ranges::any_of(binding_.parameters,
                               [&](const std::string& glob) { return glob_match(glob, known_as); });
  }

  const OnnxModel& model_;
  const Binding& binding_;
  const ParameterRule rule_;
  std::map<std::string, std::string> out_;
  bool besides_ = false;
  Hash64 rest_;
};

}  // namespace

std::map<std::string, std::string> OnnxModel::constants(const Binding& binding) const {
  return Constants(*this, binding).all();
}

uint64_t OnnxModel::fingerprint() const { return Fingerprint(*this).value(); }

}  // namespace epl::onnx
