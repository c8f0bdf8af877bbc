// Regions of elementwise primitives as one op, whose meaning is the scalar expression in its attribute, and such
// regions with sums of some of their results.
#include "core/base/shown.h"
#include "core/ops/common.h"
#include "core/ops/elementwise.h"

namespace epl {
using namespace ops;

namespace {
Result<ScalarExpr> expression_of(const OpQuery& q) {
  auto parsed = ScalarExpr::parse(q.attributes().text("expression"));
  if (!parsed.ok()) return parsed.status().with_context(cat(q.op().name, " expression"));
  if (parsed->inputs > q.inputs()) return misfit(q, "the expression uses ", parsed->inputs, " operands");
  if (parsed->outputs.empty()) return misfit(q, "the expression has no result");
  return parsed;
}
Result<Shape> joined_shape(const OpQuery& q) {
  Shape shape;
  for (int i = 0; i < q.inputs(); ++i) {
    EPL_ASSIGN(shape, broadcast_shapes(shape, q.in(i).shape));
  }
  return shape;
}
// Element type of result k: `types` names them in order, separated by commas; empty: that of the first operand.
Result<DType> result_type(const OpQuery& q, size_t k) {
  std::string_view names = q.attributes().text("types");
  if (names.empty()) return q.in(0).dtype;
  for (; k > 0; --k) {
    const size_t comma = names.find(',');
    if (comma == std::string_view::npos) return misfit(q, "types lists fewer results than the expression has");
    names.remove_prefix(comma + 1);
  }
  const std::string_view name = names.substr(0, names.find(','));
  if (auto type = parse_dtype(name)) return *type;
  return misfit(q, "no element type ", shown(name, 200));
}

void parsed_expression(ScalarExpr& s, const OpQuery& q) { s = *expression_of(q); }

Result<OutputTypes> region_types(const OpQuery& q) {
  EPL_ASSIGN(const ScalarExpr expression, expression_of(q));
  EPL_ASSIGN(const Shape shape, joined_shape(q));
  OutputTypes types;
  for (size_t k = 0; k < expression.outputs.size(); ++k) {
    EPL_ASSIGN(const DType type, result_type(q, k));
    types.push_back({type, shape});
  }
  return types;
}

double region_flops(const OpQuery& q, int64_t elements) {
  auto expression = expression_of(q);
  return expression.ok() ? static_cast<double>(elements) * static_cast<double>(expression->code.size()) : 0.0;
}

// --- fused_sum: the last results of the expression are summed ---

Result<OutputTypes> region_and_sum_types(const OpQuery& q) {
  EPL_ASSIGN(OutputTypes types, region_types(q));
  const int64_t sums = q.attributes().integer("sums"), results = static_cast<int64_t>(types.size());
  if (sums < 1 || sums > results) return misfit(q, "expected 1 to ", results, " sums, got ", sums);
  EPL_ASSIGN(const auto mask, checked_axes(q, q.attributes().ints("axes"), types[0].ndim()));
  for (size_t k = types.size() - static_cast<size_t>(sums); k < types.size(); ++k) {
    if (!is_float(types[k].dtype)) return misfit(q, "result ", k, " is no real number to be summed");
    Shape summed;
    for (int d = 0; d < types[k].ndim(); ++d) {
      if (!mask[d] || q.attributes().flag("keep")) summed.push_back(mask[d] ? 1 : types[k].shape[d]);
    }
    types[k].shape = std::move(summed);
  }
  return types;
}

void region_then_sums(Body& body) {
  const Attributes& all = body.attributes();
  std::vector<Var> operands;
  for (int i = 0; body.has(i); ++i) operands.push_back(body.in(i));
  const auto results =
      body.b.emit_all("fused", operands, {{"expression", all.text("expression")}, {"types", all.text("types")}});
  const size_t stored = results.size() - static_cast<size_t>(all.integer("sums"));
  for (size_t k = 0; k < results.size(); ++k) {
    body.set(static_cast<int>(k), k < stored ? results[k] : body.b.sum(results[k], all.ints("axes"), all.flag("keep")));
  }
}

Result<ShardingRule> region_and_sum_rule(const OpQuery& q) {
  EPL_ASSIGN(const Shape shape, joined_shape(q));
  const int ndim = static_cast<int>(shape.size());
  const std::vector<bool> mask = axis_mask(q.attributes().ints("axes"), ndim);
  const int stored = q.outputs() - static_cast<int>(q.attributes().integer("sums"));
  RuleWriter rule(q);
  for (int d = 0, kept = 0; d < ndim; ++d) {
    // Padding in an operand would have to become zero in the sums.
    const int factor = rule.factor(shape[d], mask[d]);
    for (int i = 0; i < q.inputs(); ++i) {
      const int own = d - (ndim - q.in(i).ndim());
      if (own >= 0 && q.in(i).shape[own] == shape[d]) rule.input(i, own, factor);
    }
    for (int o = 0; o < stored; ++o) rule.output(o, d, factor);
    for (int o = stored; o < q.outputs(); ++o)
      if (!mask[d]) rule.output(o, kept, factor);
    kept += !mask[d] || q.attributes().flag("keep");
  }
  return rule.done();
}
}  // namespace

EPL_OP(fused) {
  return {
      .doc =
          "A scalar expression (core/ir/scalar.h) applied to the operands, which broadcast; `types` names the results' "
          "element "
          "types, separated by commas, if they are not all that of the first operand.",
      .signature = "x* -> y",
      .attributes = {{"expression", "", true}, {"types", ""}},
      .infer = region_types,
      .scalar_of = parsed_expression,
      .no_gradient = "regions are fused after the gradients are known",
      .flops = [](const OpQuery& q) { return region_flops(q, q.out(0).elements()); },
      .samples = {"f32[4,7], f32[7] {expression=\"x0; x1; mul(%0,%1); exp(%2); 1; add(%3,%4) -> %5\"}",
                  "f32[4,1], f32[1,5] {expression=\"x0; x1; add(%0,%1); 0; gt(%2,%3) -> %2, %4\",types=\"f32,bool\"}"}};
}

EPL_OP(fused_sum) {
  return {.doc =
              "A region as in `fused`, the last `sums` results of which are summed along `axes`, and stored as sums "
              "alone; reduced dimensions stay with size one if `keep`.",
          .signature = "x* -> y",
          .attributes =
              {{"expression", "", true}, {"types", ""}, {"axes", Ints{}, true}, {"keep", true}, {"sums", int64_t{1}}},
          .infer = region_and_sum_types,
          .body = region_then_sums,
          .no_gradient = "regions are fused after the gradients are known",
          .sharding_of = region_and_sum_rule,
          .flops =
              [](const OpQuery& q) {
                const auto shape = joined_shape(q);
                return shape.ok() ? region_flops(q, TensorType{DType::f32, *shape}.elements()) : 0.0;
              },
          .samples = {"f32[4,7], f32[7] {expression=\"x0; x1; mul(%0,%1); exp(%2) -> %3, %2\",axes=[0]}",
                      "f32[4,3,6], f32[3,1] {expression=\"x0; x1; sub(%0,%1); mul(%2,%2) -> %2, %3\",axes=[0,2]}",
                      "f32[4,6] {expression=\"x0; neg(%0); mul(%0,%1) -> %1, %2\",axes=[0,1],keep=false,sums=2}",
                      "f64[2,3,4] {expression=\"x0; x0; add(%0,%1) -> %2\",axes=[-2],keep=false}"}};
}

}  // namespace epl
