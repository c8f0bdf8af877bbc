#include "core/ops/common.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/narrow.h"
#include "core/ir/sums.h"

namespace epl::ops {

std::string operand_text(const OpQuery& query) {
  std::string text;
  for (int i = 0; i < query.inputs(); ++i) {
    if (i) text += ", ";
    text += query.has(i) ? query.in(i).text() : "-";
  }
  return text;
}

Result<OutputTypes> same_as_first(const OpQuery& query) { return OutputTypes{query.in(0)}; }

Status same_dtypes(const OpQuery& query, bool floating) {
  if (floating && !is_float(query.in(0).dtype)) return misfit(query, "needs a floating-point type");
  for (int i = 1; i < query.inputs(); ++i)
    if (query.has(i) && query.in(i).dtype != query.in(0).dtype) return misfit(query, "element types differ");
  return {};
}

Status product_dtypes(const OpQuery& query, bool floating) {
  if (floating && !is_float(query.in(0).dtype)) return misfit(query, "needs a floating-point type");
  if (query.in(1).dtype != query.in(0).dtype || (query.has(2) && query.in(2).dtype != product_dtype(query)))
    return misfit(query, "element types differ");
  return {};
}

DType product_dtype(const OpQuery& query) {
  const DType type = query.in(0).dtype;
  return query.attributes().flag("wide") ? type_of_sums(type) : type;
}

Option wide_option() { return {"wide", false}; }

ProductGradient::ProductGradient(Grad& g)
    : dy(g.b.cast(g.upstream(0), g.in(0).dtype())),
      wide(g.attributes().flag("wide")),
      wide_weight(wide || has_16_bits(g.in(0).dtype())) {}

Result<int> checked_axis(const OpQuery& query, int64_t axis, int ndim) {
  if (axis < -ndim || axis >= ndim) return misfit(query, "axis ", axis, " is outside [", -ndim, ", ", ndim, ")");
  return static_cast<int>(axis < 0 ? axis + ndim : axis);
}

Result<std::vector<bool>> checked_axes(const OpQuery& query, const Ints& axes, int ndim) {
  std::vector<bool> mask(ndim, false);
  for (int64_t a : axes) {
    EPL_ASSIGN(int axis, checked_axis(query, a, ndim));
    if (mask[axis]) return misfit(query, "axis ", a, " is given twice");
    mask[axis] = true;
  }
  return mask;
}

std::vector<bool> axis_mask(const Ints& axes, int ndim) {
  std::vector<bool> mask(ndim, false);
  for (int64_t a : axes) mask[a < 0 ? a + ndim : a] = true;
  return mask;
}

Status expect_shape(const OpQuery& query, int input, const Shape& shape, std::string_view what) {
  if (!query.has(input) || query.in(input).shape == shape) return {};
  return misfit(query, what, " must have shape ", shape, ", not ", query.in(input).shape);
}

std::vector<TensorType> input_types(const OpQuery& query) {
  std::vector<TensorType> types(query.inputs());
  for (int i = 0; i < query.inputs(); ++i)
    if (query.has(i)) types[i] = query.in(i);
  return types;
}

std::vector<TensorType> output_types(const OpQuery& query) {
  std::vector<TensorType> types(query.outputs());
  for (int i = 0; i < query.outputs(); ++i)
    if (query.has_output(i)) types[i] = query.out(i);
  return types;
}

namespace {

bool is_constant(const Graph& graph, Value value) { return graph.value(value).kind == ValueKind::constant; }

// The exponent of a pow, if it is one constant number; else 0.
double constant_power(const Graph& graph, const Node& node) {
  const Tensor& data = graph.value(node.inputs[1]).data;
  return is_constant(graph, node.inputs[1]) && !data.empty() && data.elements() == 1 ? data.get(0) : 0;
}

// What the value is a view of, or an order of.
Value unmoved(const Graph& graph, Value value) {
  while (graph.value(value).kind == ValueKind::result) {
    const Node& node = graph.node(graph.value(value).producer);
    if (node.op->moves != Moves::all) break;
    value = node.inputs[0];
  }
  return value;
}

constexpr int deepest_norm = 24;

bool is_base(const Graph& graph, Value value, int depth) {
  if (graph.value(value).kind != ValueKind::result || depth == deepest_norm) return false;
  const Node& node = graph.node(graph.value(value).producer);
  const std::string& op = node.op->name;
  const auto operand = [&](int i) { return is_base(graph, node.inputs[static_cast<size_t>(i)], depth + 1); };
  const auto constant = [&](int i) { return is_constant(graph, node.inputs[static_cast<size_t>(i)]); };
  if (op == "abs" || op == "relu") return true;
  if (op == "pow") return constant_power(graph, node) > 1;
  if (op == "mul" || op == "matmul") {
    if (unmoved(graph, node.inputs[0]) == unmoved(graph, node.inputs[1])) return true;
    if (op == "mul" && (constant(0) || constant(1))) return operand(constant(0) ? 1 : 0);
    return operand(0) && operand(1);
  }
  if (op == "add" || op == "max" || op == "min")
    return (constant(0) || operand(0)) && (constant(1) || operand(1)) && !(constant(0) && constant(1));
  if (op == "where") return (constant(1) || operand(1)) && (constant(2) || operand(2));
  const bool sums = op == "sum" || op == "avg_pool" || op == "div" || op == "clip";
  return (sums || node.op->moves != Moves::none) && operand(0);
}

}  // namespace

Var unless_cut(Grad& g, const Var& product) {
  const Var dy = g.upstream(0);
  if (!product || is_constant(g.b.graph(), dy.value())) return product;
  const Var cut = g.b.emit("logical_and", {g.b.equal(dy, g.b.like(dy, 0)), g.b.unary("is_nan", product)});
  return g.b.select(cut, dy, product);
}

bool is_base_of_norm(const Graph& graph, Value value) { return is_base(graph, value, 0); }

Var saved_output(Grad& g, int output) {
  if (g.out(output)) return g.out(output);
  std::vector<Var> inputs;
  for (int i = 0; i < g.inputs(); ++i) inputs.push_back(g.in(i));
  const std::vector<Var> again = g.b.emit_all(g.node().op->name, inputs, g.attributes());
  return again[std::min<size_t>(output, again.size() - 1)];
}

AxisSpan span_at(const Shape& shape, int axis) {
  return {elements_before(shape, axis), shape[axis], elements_from(shape, axis + 1)};
}

int64_t elements_before(const Shape& shape, int end) {
  int64_t n = 1;
  for (int d = 0; d < end; ++d) n *= shape[d];
  return n;
}

int64_t elements_from(const Shape& shape, int begin) {
  int64_t n = 1;
  for (size_t d = begin; d < shape.size(); ++d) n *= shape[d];
  return n;
}

int64_t linear_index(std::span<const int64_t> shape, const Dims& index) {
  int64_t linear = 0;
  for (size_t d = 0; d < shape.size(); ++d) linear = linear * shape[d] + index[d];
  return linear;
}

void copy_element(const TensorView& source, int64_t i, const TensorView& target, int64_t o) {
  const size_t bytes = dtype_bytes(source.dtype());
  std::memcpy(static_cast<char*>(target.data()) + o * bytes, static_cast<const char*>(source.data()) + i * bytes,
              bytes);
}

void store_out_of_range(const TensorView& target, int64_t o) {
  if (is_float(target.dtype()))
    target.set(o, std::numeric_limits<double>::quiet_NaN());
  else
    target.set_int(o, 0);
}

double rounded(DType type, double value) {
  if (type == DType::f64) return value;
  uint64_t bits = 0;
  store_double(type, &bits, 0, value);
  return load_double(type, &bits, 0);
}

double unit_sum(int64_t n, Units units, DType type, FunctionRef<double(int64_t)> term) {
  EPL_CHECK(units.count >= 1 && units.divide(n), "cannot sum ", n, " terms in ", units.count, " units, ", units.outer,
            " times");
  if (units.count == 1) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += term(i);
    return sum;
  }
  std::array<double, 64> near{};
  std::vector<double> far(units.count > 64 ? units.count : 0);  // no batch is cut so finely
  double* parts = far.empty() ? near.data() : far.data();
  for (int64_t i = 0; i < n; ++i) parts[units.of(i, n)] += term(i);
  for (int64_t u = 0; u < units.count; ++u) parts[u] = rounded(type, parts[u]);
  for (int64_t step = 1; step < units.count; step *= 2)
    for (int64_t u = 0; u + step < units.count; u += 2 * step) parts[u] = rounded(type, parts[u] + parts[u + step]);
  return parts[0];
}

void store_unit_sums(std::span<const double> parts, int64_t units, const TensorView& out) {
  const int64_t n = out.elements();
  for (int64_t i = 0; i < n; ++i) {
    out.set(i, unit_sum(units, units, out.dtype(), [&](int64_t u) { return parts[u * n + i]; }));
  }
}

int64_t room_for_sums(const OpQuery& query, Units) { return Room::bytes<double>(query.out(0).elements()); }
int64_t room_for_unit_sums(const OpQuery& query, Units units) {
  return Room::bytes<double>(units.count * query.out(0).elements());
}

RuleWriter::RuleWriter(const OpQuery& query) : query_(query) {
  rule_.inputs.resize(query.inputs());
  rule_.outputs.resize(query.outputs());
  for (int i = 0; i < query.inputs(); ++i)
    if (query.has(i)) rule_.inputs[i].resize(query.in(i).shape.size());
  for (int i = 0; i < query.outputs(); ++i)
    if (query.has_output(i)) rule_.outputs[i].resize(query.out(i).shape.size());
}

void RuleWriter::input(int i, int dim, int factor) { input(i, dim, std::vector<int>{factor}); }
void RuleWriter::output(int i, int dim, int factor) { output(i, dim, std::vector<int>{factor}); }

void RuleWriter::input(int i, int dim, const std::vector<int>& factors) {
  if (!query_.has(i) || query_.in(i).shape[dim] == 1) return;
  for (int f : factors)
    if (rule_.factors[f].size != 1) rule_.inputs[i][dim].push_back(f);
}

void RuleWriter::output(int i, int dim, const std::vector<int>& factors) {
  if (!query_.has_output(i) || query_.out(i).shape[dim] == 1) return;
  for (int f : factors)
    if (rule_.factors[f].size != 1) rule_.outputs[i][dim].push_back(f);
}

ShardingRule RuleWriter::done() {
  for (int i = 0; i < query_.inputs(); ++i)
    for (size_t d = 0; d < rule_.inputs[i].size(); ++d)
      if (rule_.inputs[i][d].empty() && query_.in(i).shape[d] != 1)
        rule_.inputs[i][d] = {factor(query_.in(i).shape[d], true)};
  for (int i = 0; i < query_.outputs(); ++i)
    for (size_t d = 0; d < rule_.outputs[i].size(); ++d)
      if (rule_.outputs[i][d].empty() && query_.out(i).shape[d] != 1)
        rule_.outputs[i][d] = {factor(query_.out(i).shape[d], true)};
  return std::move(rule_);
}

ShardingRule aligned_rule(const OpQuery& query, const std::vector<bool>& unshardable) {
  RuleWriter writer(query);
  const size_t ndim = unshardable.size();
  for (size_t d = 0; d < ndim; ++d) {
    if (unshardable[d]) continue;
    int64_t size = 1;
    for (int i = 0; i < query.inputs(); ++i)
      if (query.has(i) && query.in(i).shape.size() == ndim) size = std::max(size, query.in(i).shape[d]);
    if (size == 1) continue;
    const int factor = writer.factor(size);
    for (int i = 0; i < query.inputs(); ++i)
      if (query.has(i) && query.in(i).shape.size() == ndim) writer.input(i, d, factor);
    for (int i = 0; i < query.outputs(); ++i)
      if (query.has_output(i) && query.out(i).shape.size() == ndim) writer.output(i, d, factor);
  }
  return writer.done();
}

Result<ShardingRule> unshardable_axis_rule(const OpQuery& query) {
  const int ndim = query.in(0).ndim();
  std::vector<bool> unshardable(ndim, false);
  unshardable[query.axis("axis", ndim)] = true;
  return aligned_rule(query, unshardable);
}

}  // namespace epl::ops
