// What tells one model from another whatever its weights are: its operators, their attributes, how they hang together,
// and the integers among its initialisers, which say how many heads there are and how tensors are
// reshaped.
#include "core/base/hash.h"
#include "frontends/onnx/model.h"

namespace epl::onnx {
namespace {

constexpr int64_t max_bytes_of_numbers = 4096;

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
    for (const Attribute& a : node.attributes) {
      for (std::string_view text : {a.name, a.ref, a.s}) add(text);
      hash_.add(&a.f, sizeof a.f);
      number(a.i);
      for (float f : a.floats) hash_.add(&f, sizeof f);
      for (int64_t i : a.ints) number(i);
      add(a.strings);
      if (a.t) add(*a.t);
      if (a.g) add(*a.g);
    }
  }

  const OnnxModel& model_;
  Hash64 hash_;
};

}  // namespace

uint64_t OnnxModel::fingerprint() const { return Fingerprint(*this).value(); }

}  // namespace epl::onnx
