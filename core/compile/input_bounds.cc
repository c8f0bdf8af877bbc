#include "core/compile/input_bounds.h"

#include <algorithm>

namespace epl {
namespace {

// The input whose elements a value holds, none but those: -1 if there is none. Keras feeds indices as float32, which a
// cast makes integers.
std::vector<int> sources_of(const Graph& graph) {
  std::vector<int> source(static_cast<size_t>(graph.value_count()), -1);
  const std::vector<Value> inputs = graph.leaves(ValueKind::input);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (graph.type(inputs[i]).dtype != DType::boolean)
      source[static_cast<size_t>(inputs[i].index)] = static_cast<int>(i);
  }
  for (const Node& node : graph.nodes()) {
    if (node.inputs.empty() || node.outputs.empty() || !node.outputs[0] || !node.inputs[0]) continue;
    if (only_moves(*node.op) && graph.type(node.outputs[0]).dtype != DType::boolean)
      source[static_cast<size_t>(node.outputs[0].index)] = source[static_cast<size_t>(node.inputs[0].index)];
  }
  return source;
}

template <class T> int64_t find_outside(const InputBound& bound, const Tensor& tensor) {
  const auto values = tensor.as<T>();
  const auto wrong = std::ranges::find_if(values, [&](T value) { return !bound.holds(static_cast<int64_t>(value)); });
  return wrong == values.end() ? -1 : wrong - values.begin();
}

}  // namespace

std::vector<InputBound> input_bounds(const Graph& graph, const LossFacts& loss, std::string_view target_input) {
  std::vector<InputBound> bounds;
  const std::vector<int> source = sources_of(graph);
  const auto add = [&](int input, const IndexRange& range, const std::string& node) {
    const auto same = [&](const InputBound& b) {
      return b.input == input && b.range.low == range.low && b.range.high == range.high &&
             b.range.ignored == range.ignored;
    };
    if (std::ranges::none_of(bounds, same)) bounds.push_back({input, range, node});
  };
  const Value target = graph.find(target_input);
  if (loss.classes > 0 && target && is_integer(graph.type(target).dtype) &&
      source[static_cast<size_t>(target.index)] >= 0) {
    add(source[static_cast<size_t>(target.index)],
        {.low = 0, .high = loss.classes, .ignored = loss.ignored, .what = cat("class of ", loss.classes)}, "loss");
  }
  for (const Node& node : graph.nodes()) {
    const IndexRow* row = index_row(*node.op);
    if (row == nullptr) continue;
    std::vector<const TensorType*> inputs, outputs;
    for (Value v : node.inputs) inputs.push_back(v ? &graph.type(v) : nullptr);
    for (Value v : node.outputs) outputs.push_back(v ? &graph.type(v) : nullptr);
    const IndexRange range = row->range(OpQuery(*node.op, node.attributes, inputs, outputs));
    const Value indices = node.inputs[static_cast<size_t>(range.input)];
    if (indices && source[static_cast<size_t>(indices.index)] >= 0)
      add(source[static_cast<size_t>(indices.index)], range, node.name);
  }
  return bounds;
}

int64_t find_out_of_bounds(const InputBound& bound, const Tensor& tensor) {
  if (tensor.dtype() == DType::i64) return find_outside<int64_t>(bound, tensor);
  if (tensor.dtype() == DType::i32) return find_outside<int32_t>(bound, tensor);
  const int64_t count = tensor.elements();
  for (int64_t i = 0; i < count; ++i) {
    if (!bound.holds(tensor.get_int(i))) return i;
  }
  return -1;
}

std::string bound_text(const InputBound& bound, const std::string& value) {
  const bool vowel = bound.range.what.find_first_of("aeiou") == 0;
  std::string out = cat("holds ", value, ", which is not a", vowel ? "n " : " ", bound.range.what);
  if (bound.range.ignored) out += cat(" and not the ignored ", *bound.range.ignored);
  return out + "; they count from 0";
}

int64_t row_of(const TensorType& type, int dim, int64_t element) {
  if (dim < 0 || dim >= type.ndim()) return -1;
  int64_t inner = 1;
  for (int d = dim + 1; d < type.ndim(); ++d) inner *= type.shape[static_cast<size_t>(d)];
  return element / inner % type.shape[static_cast<size_t>(dim)];
}

std::string place_text(const TensorType& type, int dim, int64_t element) {
  const int64_t row = row_of(type, dim, element);
  return row < 0 ? cat("element ", element) : cat("row ", row);
}

}  // namespace epl
