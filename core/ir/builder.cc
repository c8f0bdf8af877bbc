#include "core/ir/builder.h"

#include <algorithm>
#include <numeric>

#include "core/base/check.h"
#include "core/base/narrow.h"
#include "core/ir/op.h"
#include "core/ir/sums.h"

namespace epl {
namespace {
Ints normalized_axes(const Ints& axes, int ndim) {
  Ints out;
  for (int64_t axis : axes) out.push_back(axis < 0 ? axis + ndim : axis);
  std::ranges::sort(out);
  return out;
}

// The value of 16 bits that a cast made this one from without rounding it; none: Value{}.
Value widened_from(const Graph& graph, Value value) {
  if (!value || graph.value(value).kind != ValueKind::result) return {};
  const Node& made_by = graph.node(graph.value(value).producer);
  if (made_by.op->moves != Moves::converted || !has_16_bits(graph.type(made_by.inputs[0]).dtype)) return {};
  const DType type = graph.type(value).dtype;
  return type == DType::f32 || type == DType::f64 ? made_by.inputs[0] : Value{};
}
}  // namespace

const TensorType& Var::type() const {
  static const TensorType none;
  return value_ ? builder_->graph_.type(value_) : none;
}

int64_t Var::dim(int i) const {
  const Shape& s = shape();
  int n = static_cast<int>(s.size());
  int at = i < 0 ? i + n : i;
  return at >= 0 && at < n ? s[at] : 1;
}

std::vector<Var> Builder::emit_all(std::string_view op_name, const std::vector<Var>& inputs, Attributes attributes) {
  const OpDef& op = op_named(op_name);
  std::vector<Var> failed(std::max(op.output_count(), 1));
  if (!status_.ok()) return failed;
  Node node{.name = graph_.unique_name(scope_.empty() ? op_name : scope_),
            .op = &op,
            .phase = phase_,
            .source = source_,
            .origin = origin_};
  std::vector<const TensorType*> types;
  for (const Var& input : inputs) {
    node.inputs.push_back(input.value());
    types.push_back(input ? &input.type() : nullptr);
  }
  auto refuse = [&](const Status& status) {
    fail(status.with_context(cat(node.name, " (", op_name, ")")).at(node.name));
    return failed;
  };
  if (Status status = complete_attributes(op, attributes); !status.ok()) return refuse(status);
  auto outputs = infer_types(op, attributes, types);
  if (!outputs.ok()) return refuse(outputs.status());
  node.attributes = std::move(attributes);
  NodeId id = graph_.add_node(std::move(node), *std::move(outputs));
  std::vector<Var> results;
  for (Value output : graph_.node(id).outputs) results.emplace_back(this, output);
  return results;
}

Var Builder::emit(std::string_view op, const std::vector<Var>& inputs, Attributes attributes) {
  return emit_all(op, inputs, std::move(attributes))[0];
}

Var Builder::constant(Tensor data) {
  if (!status_.ok()) return {};
  return var(graph_.add_constant(scope_.empty() ? "constant" : cat(scope_, ".constant"), std::move(data)));
}

Var Builder::scalar(DType dtype, double value) {
  Tensor data = Tensor::scalar(dtype, value);
  return constant(std::move(data));
}

Var Builder::cast(const Var& x, DType type) {
  if (x.dtype() == type) return x;
  if (const Value narrow = widened_from(graph_, x.value()); narrow && graph_.type(narrow).dtype == type)
    return var(narrow);
  return emit("cast", {x}, {{"to", type}});
}

Var Builder::reshape(const Var& x, Shape shape) {
  return x.shape() == shape ? x : emit("reshape", {x}, {{"shape", Ints(std::move(shape))}});
}

Var Builder::transpose(const Var& x, Ints permutation) {
  bool identity = true;
  for (size_t i = 0; i < permutation.size(); ++i) identity &= permutation[i] == static_cast<int64_t>(i);
  return identity ? x : emit("transpose", {x}, {{"perm", std::move(permutation)}});
}

Var Builder::broadcast_to(const Var& x, Shape shape) {
  return x.shape() == shape ? x : emit("broadcast_to", {x}, {{"shape", Ints(std::move(shape))}});
}

Var Builder::slice(const Var& x, Ints axes, Ints starts, Ints ends, Ints steps) {
  if (steps.empty()) steps.assign(axes.size(), 1);
  return emit("slice", {x},
              {{"axes", std::move(axes)},
               {"starts", std::move(starts)},
               {"ends", std::move(ends)},
               {"steps", std::move(steps)}});
}

Var Builder::concat(const std::vector<Var>& parts, int64_t axis) {
  return parts.size() == 1 ? parts[0] : emit("concat", parts, {{"axis", axis}});
}

Var Builder::sum(const Var& x, Ints axes, bool keep) {
  if (axes.empty()) return x;
  return emit("sum", {x}, {{"axes", normalized_axes(axes, x.ndim())}, {"keep", keep}});
}

Var Builder::mean(const Var& x, Ints axes, bool keep) {
  double count = 1;
  for (int64_t axis : axes) count *= static_cast<double>(x.dim(static_cast<int>(axis)));
  return in_type_of_sums(*this, x, [&](const Var& wide) { return sum(wide, std::move(axes), keep) * (1.0 / count); });
}

Var Builder::max_along(const Var& x, Ints axes, bool keep) {
  if (axes.empty()) return x;
  return emit("max_reduce", {x}, {{"axes", normalized_axes(axes, x.ndim())}, {"keep", keep}});
}

Var Builder::matmul(const Var& a, const Var& b, bool transpose_a, bool transpose_b) {
  return emit("matmul", {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

Var Builder::sum_to(const Var& x, const Shape& shape) {
  if (!x || x.shape() == shape) return x;
  int extra = x.ndim() - static_cast<int>(shape.size());
  Ints axes;
  for (int i = 0; i < x.ndim(); ++i) {
    if (i < extra || (shape[i - extra] == 1 && x.dim(i) != 1)) axes.push_back(i);
  }
  return reshape(sum(x, std::move(axes), true), shape);
}

namespace {
Builder& of(const Var& a, const Var& b) { return a ? a.builder() : b.builder(); }
Var binary(const char* op, const Var& a, const Var& b) {
  if (!a || !b) return {};
  return of(a, b).emit(op, {a, b});
}
Var binary(const char* op, const Var& a, double b) { return a ? binary(op, a, a.builder().like(a, b)) : Var(); }
Var binary(const char* op, double a, const Var& b) { return b ? binary(op, b.builder().like(b, a), b) : Var(); }
}  // namespace

Var operator+(const Var& a, const Var& b) { return binary("add", a, b); }
Var operator-(const Var& a, const Var& b) { return binary("sub", a, b); }
Var operator*(const Var& a, const Var& b) { return binary("mul", a, b); }
Var operator/(const Var& a, const Var& b) { return binary("div", a, b); }
Var operator-(const Var& a) { return a ? a.builder().emit("neg", {a}) : Var(); }
Var operator>(const Var& a, const Var& b) { return binary("greater", a, b); }
Var operator<(const Var& a, const Var& b) { return binary("less", a, b); }
Var operator>=(const Var& a, const Var& b) { return binary("greater_equal", a, b); }
Var operator<=(const Var& a, const Var& b) { return binary("less_equal", a, b); }
Var operator+(const Var& a, double b) { return binary("add", a, b); }
Var operator-(const Var& a, double b) { return binary("sub", a, b); }
Var operator*(const Var& a, double b) { return binary("mul", a, b); }
Var operator/(const Var& a, double b) { return binary("div", a, b); }
Var operator+(double a, const Var& b) { return binary("add", a, b); }
Var operator-(double a, const Var& b) { return binary("sub", a, b); }
Var operator*(double a, const Var& b) { return binary("mul", a, b); }
Var operator/(double a, const Var& b) { return binary("div", a, b); }
Var operator>(const Var& a, double b) { return binary("greater", a, b); }
Var operator<(const Var& a, double b) { return binary("less", a, b); }
Var operator>=(const Var& a, double b) { return binary("greater_equal", a, b); }
Var operator<=(const Var& a, double b) { return binary("less_equal", a, b); }

namespace {
int axis_of(const Attributes& attributes, std::string_view name, int ndim) {
  int64_t axis = attributes.integer(name);
  return static_cast<int>(axis < 0 ? axis + ndim : axis);
}
}  // namespace

int Body::axis(std::string_view name, int ndim) const { return axis_of(attributes_, name, ndim); }
int Grad::axis(std::string_view name, int ndim) const { return axis_of(node_.attributes, name, ndim); }

void Grad::set(int i, const Var& gradient) {
  if (!needs(i) || !gradient) return;
  const bool sums = gradient && gradient.shape() != inputs_[i].shape();
  gradients_[i] = b.sum_to(sums ? b.cast(gradient, type_of_sums(gradient.dtype())) : gradient, inputs_[i].shape());
}

}  // namespace epl
