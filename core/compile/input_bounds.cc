#include "core/compile/input_bounds.h"

#include <algorithm>
#include <limits>

namespace epl {
namespace {

template <class T> int64_t find_outside(const InputBound& bound, const Tensor& tensor) {
  const auto values = tensor.as<T>();
  const auto wrong = std::ranges::find_if(values, [&](T value) { return !bound.holds(static_cast<int64_t>(value)); });
  return wrong == values.end() ? -1 : wrong - values.begin();
}

int64_t find_outside(const InputBound& bound, const Tensor& tensor) {
  if (tensor.dtype() == DType::i64) return find_outside<int64_t>(bound, tensor);
  if (tensor.dtype() == DType::i32) return find_outside<int32_t>(bound, tensor);
  const int64_t count = tensor.elements();
  for (int64_t i = 0; i < count; ++i) {
    if (!bound.holds(tensor.get_int(i))) return i;
  }
  return -1;
}

// The least and the largest of integers.
Tensor ends_of(const Tensor& tensor) {
  Tensor ends({tensor.dtype(), {2}});
  const auto take = [&]<class T>(std::span<const T> values) {
    const auto [low, high] = std::ranges::minmax_element(values);
    ends.set_int(0, static_cast<int64_t>(*low));
    ends.set_int(1, static_cast<int64_t>(*high));
  };
  tensor.dtype() == DType::i64 ? take(tensor.as<int64_t>()) : take(tensor.as<int32_t>());
  return ends;
}

// Whether all is well, told quickly.
bool holds_for_ends(const InputBound& bound, const Tensor& tensor) {
  const bool quick = tensor.dtype() == DType::i64 || tensor.dtype() == DType::i32;
  if (!quick || tensor.elements() < 2 || bound.range.ignored || !bound.arithmetic.monotone()) return false;
  const Tensor made = bound.arithmetic.of(ends_of(tensor));
  return !made.empty() && find_outside(bound, made) < 0;
}

}  // namespace

std::vector<InputBound> input_bounds(const Graph& graph, const LossFacts& loss, std::string_view target_input) {
  std::vector<InputBound> bounds;
  const IndexSources sources(graph);
  const auto add = [&](Value indices, IndexRange range, const std::string& node) {
    IndexSource source = sources.of(indices);
    if (source.input < 0) return;
    if (source.largest_only) range.low = std::numeric_limits<int64_t>::min();
    const auto same = [&](const InputBound& b) {
      return b.input == source.input && b.range.low == range.low && b.range.high == range.high &&
             b.range.ignored == range.ignored && b.arithmetic.empty();
    };
    if (source.arithmetic.empty() && std::ranges::any_of(bounds, same)) return;
    bounds.push_back({source.input, std::move(range), node, std::move(source.arithmetic)});
  };
  const Value target = graph.find(target_input);
  if (loss.classes > 0 && target && is_integer(graph.type(target).dtype)) {
    add(target, {.low = 0, .high = loss.classes, .ignored = loss.ignored, .what = cat("class of ", loss.classes)},
        "loss");
  }
  for (const Node& node : graph.nodes()) {
    const IndexRow* row = index_row(*node.op);
    if (row == nullptr) continue;
    std::vector<const TensorType*> inputs, outputs;
    for (Value v : node.inputs) inputs.push_back(v ? &graph.type(v) : nullptr);
    for (Value v : node.outputs) outputs.push_back(v ? &graph.type(v) : nullptr);
    const IndexRange range = row->range(OpQuery(*node.op, node.attributes, inputs, outputs));
    const Value indices = node.inputs[static_cast<size_t>(range.input)];
    if (indices) add(indices, range, node.name);
  }
  return bounds;
}

int64_t find_out_of_bounds(const InputBound& bound, const Tensor& tensor) {
  if (bound.arithmetic.empty()) return find_outside(bound, tensor);
  if (tensor.elements() == 0 || holds_for_ends(bound, tensor)) return -1;
  const Tensor made = bound.arithmetic.of(tensor);
  return made.empty() ? -1 : find_outside(bound, made);
}

namespace {

// "not a class of 3; they count from 0"
std::string not_one(const InputBound& bound) {
  const bool vowel = bound.range.what.find_first_of("aeiou") == 0;
  std::string out = cat("not a", vowel ? "n " : " ", bound.range.what);
  if (bound.range.ignored) out += cat(" and not the ignored ", *bound.range.ignored);
  return out + "; they count from 0";
}

}  // namespace

std::string bound_text(const InputBound& bound, const std::string& value) {
  if (!bound.range.exceeded.empty()) return cat("holds ", value, ", ", bound.range.exceeded);
  return cat("holds ", value, ", which is ", not_one(bound));
}

std::string bound_text(const InputBound& bound, const Tensor& tensor, int64_t element) {
  const std::string value = is_float(tensor.dtype()) ? number_text(tensor.get(element)) : cat(tensor.get_int(element));
  const Tensor made = bound.arithmetic.empty() ? Tensor() : bound.arithmetic.of(tensor);
  if (made.empty()) return bound_text(bound, is_float(tensor.dtype()) ? cat(tensor.get_int(element)) : value);
  const int64_t number = made.get_int(element);
  if (!bound.range.exceeded.empty())
    return cat("holds ", value, ", of which the model makes ", number, ", ", bound.range.exceeded);
  return cat("holds ", value, ", of which the model makes the index ", number, ", and that is out of range: it is ",
             not_one(bound));
}

int64_t row_of(const TensorType& type, int dim, int64_t element) {
  if (dim < 0 || dim >= type.ndim()) return -1;
  int64_t inner = 1;
  for (int d = dim + 1; d < type.ndim(); ++d) inner *= type.shape[static_cast<size_t>(d)];
  return element / inner % type.shape[static_cast<size_t>(dim)];
}

std::string element_text(const TensorType& type, int dim, int64_t element) {
  const int64_t row = row_of(type, dim, element);
  return row < 0 ? cat("element ", element) : cat("row ", row);
}

}  // namespace epl
