#include "core/train/precision.h"

#include <charconv>
#include <cmath>

#include "core/base/converted.h"
#include "core/ir/op.h"
#include "core/ir/rewriter.h"

namespace epl {
namespace {

// The simple number that `value` stands for, up to two roundings of float32: a decimal of up to five digits, the
// reciprocal of an integer (the factor of a mean) or of its root (the scale of attention, often the product of two
// factors). The value itself where it is none of these.
double as_written(double value) {
  if (!std::isfinite(value) || value == 0) return value;
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific, 4).ptr;
  double decimal = value;
  std::from_chars(text, end, decimal);
  const double n = std::nearbyint(1 / value), squared = std::nearbyint(1 / (value * value));
  const double above = std::nearbyint(1 / (value - 1));  // n / (n - 1): an unbiased variance
  for (double simple : {decimal, 1 / n, std::copysign(1 / std::sqrt(squared), value), 1 + 1 / above}) {
    if (std::fabs(simple / value - 1) < 0x1p-22) return simple;
  }
  return value;
}

// Constants are looked at when graphs are made, so they are in memory; the others may stay where they are.
Result<Tensor> widened(const ValueInfo& info) {
  if (info.data.empty()) return Tensor();
  Tensor wide = converted(info.data, DType::f64);
  if (info.kind != ValueKind::constant) return wide;
  if (info.type.elements() == 1) wide = mapped(wide, [](int64_t, double value) { return as_written(value); });
  return wide.load();
}

void widen(Attributes& attributes) {
  const std::vector<Attributes::Entry> entries = attributes.entries();
  for (const Attributes::Entry& entry : entries) {
    if (const auto* type = std::get_if<DType>(&entry.value); type && *type == DType::f32) {
      attributes.set(entry.name, DType::f64);
    } else if (const auto* number = std::get_if<double>(&entry.value)) {
      attributes.set(entry.name, as_written(*number));
    }
  }
}

// A result of float32 becomes one of float64: by the op's own rule, or by a cast if its result always has one type (a
// count).
Status widen(NodeId node, const Graph& graph, GraphRewriter& now, Graph& out, Builder& builder) {
  const NodeId made = now.copy(node);
  widen(out.node(made).attributes);
  std::vector<const TensorType*> inputs;
  for (Value input : out.node(made).inputs) inputs.push_back(input ? &out.type(input) : nullptr);
  EPL_ASSIGN(const OutputTypes types, infer_types(*out.node(made).op, out.node(made).attributes, inputs));
  const std::vector<Value> old = graph.node(node).outputs, results = out.node(made).outputs;
  for (size_t o = 0; o < old.size(); ++o) {
    if (!old[o]) continue;
    out.value(results[o]).type.dtype = types[o].dtype;
    if (graph.type(old[o]).dtype != DType::f32 || types[o].dtype != DType::f32) continue;
    builder.set_phase(graph.node(node).phase);
    builder.set_origin(graph.node(node).origin_name());
    builder.set_scope(cat(out.value(results[o]).name, ".f64"));
    now.set(old[o], builder.cast(builder.var(results[o]), DType::f64).value());
  }
  return {};
}

}  // namespace

Result<Graph> with_float64(const Graph& graph) {
  Graph out;
  GraphRewriter now(graph, out);
  Builder builder(out);
  for (int i = 0; i < graph.value_count(); ++i) {
    const ValueInfo& info = graph.value(Value{i});
    if (info.kind == ValueKind::result || info.type.dtype != DType::f32) continue;
    if (info.kind == ValueKind::input) {
      builder.set_scope(cat(info.name, ".f64"));
      now.set(Value{i}, builder.cast(builder.var(now[Value{i}]), DType::f64).value());
      continue;
    }
    ValueInfo& made = out.value(now[Value{i}]);
    made.type.dtype = DType::f64;
    EPL_ASSIGN(made.data, widened(info));
  }
  for (int n = 0; n < graph.node_count(); ++n) EPL_TRY(widen(NodeId{n}, graph, now, out, builder));
  EPL_TRY(builder.status());
  now.finish();
  return out;
}

}  // namespace epl
