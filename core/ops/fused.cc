// Regions of elementwise primitives as one op, whose meaning is the scalar expression in its attribute.
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
  return misfit(q, "no element type \"", name, "\"");
}

// The joined shape's elements are visited in row-major order, so every sum runs in logical order.
void fused_sum_reference(const Reference& r) {
  const ScalarExpr expression = *expression_of(r.query());
  const Shape shape = *joined_shape(r.query());
  const std::vector<bool> mask = axis_mask(r.attributes().ints("axes"), static_cast<int>(shape.size()));
  std::vector<Doubles> runs(r.out(0).elements());
  Doubles in(r.query().inputs());
  for_each_index(shape, [&](int64_t, const Ints& index) {
    int64_t o = 0;
    for (size_t d = 0; d < shape.size(); ++d)
      if (!mask[d]) o = o * shape[d] + index[d];
    for (size_t k = 0; k < in.size(); ++k) {
      const Shape& own = r.in(static_cast<int>(k)).shape();
      int64_t at = 0;
      for (size_t d = 0; d < own.size(); ++d)
        at = at * own[d] + (own[d] == 1 ? 0 : index[d + shape.size() - own.size()]);
      in[k] = r.in(static_cast<int>(k)).get(at);
    }
    double value = 0;
    expression.evaluate(in.data(), &value);
    runs[o].push_back(value);
  });
  for (size_t o = 0; o < runs.size(); ++o)
    r.out(0).set(static_cast<int64_t>(o), unit_sum(static_cast<int64_t>(runs[o].size()), r.units(), r.out(0).dtype(),
                                                   [&](int64_t k) { return runs[o][k]; }));
}

Result<ShardingRule> fused_sum_rule(const OpQuery& q) {
  EPL_ASSIGN(const Shape shape, joined_shape(q));
  const int ndim = static_cast<int>(shape.size());
  const std::vector<bool> mask = axis_mask(q.attributes().ints("axes"), ndim);
  RuleWriter rule(q);
  int o = 0;
  for (int d = 0; d < ndim; ++d) {
    const int factor = rule.factor(shape[d]);
    for (int i = 0; i < q.inputs(); ++i)
      if (const int own = d - (ndim - q.in(i).ndim()); own >= 0) rule.input(i, own, factor);
    if (!mask[d]) rule.output(0, o, factor);
    if (!mask[d] || q.attributes().flag("keep")) ++o;
  }
  return rule.done();
}
void parsed_expression(ScalarExpr& s, const OpQuery& q) { s = *expression_of(q); }
}  // namespace

EPL_OP(fused) {
  return {
      .doc =
          "A scalar expression (core/ir/scalar.h) applied to the operands, which broadcast; `types` names the results' "
          "element "
          "types, separated by commas, if they are not all that of the first operand.",
      .signature = "x* -> y",
      .attributes = {{"expression", "", true}, {"types", ""}},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        EPL_ASSIGN(const ScalarExpr expression, expression_of(q));
        EPL_ASSIGN(const Shape shape, joined_shape(q));
        OutputTypes types;
        for (size_t k = 0; k < expression.outputs.size(); ++k) {
          EPL_ASSIGN(const DType type, result_type(q, k));
          types.push_back({type, shape});
        }
        return types;
      },
      .scalar_of = parsed_expression,
      .no_gradient = "regions are fused after the gradients are known",
      .flops =
          [](const OpQuery& q) {
            auto expression = expression_of(q);
            return expression.ok()
                       ? static_cast<double>(q.out(0).elements()) * static_cast<double>(expression->code.size())
                       : 0.0;
          },
      .samples = {"f32[4,7], f32[7] {expression=\"x0; x1; mul(%0,%1); exp(%2); 1; add(%3,%4) -> %5\"}",
                  "f32[4,1], f32[1,5] {expression=\"x0; x1; add(%0,%1); 0; gt(%2,%3) -> %2, %4\",types=\"f32,bool\"}"}};
}

EPL_OP(fused_sum) {
  return {.doc =
              "A scalar expression with one result applied to the operands, which broadcast, then summed along `axes`; "
              "reduced "
              "dimensions stay with size one if `keep`.",
          .signature = "x* -> y",
          .attributes = {{"expression", "", true}, {"axes", Ints{}, true}, {"keep", true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_ASSIGN(const ScalarExpr expression, expression_of(q));
            if (expression.outputs.size() != 1) return misfit(q, "the expression must have one result");
            EPL_ASSIGN(const Shape shape, joined_shape(q));
            EPL_ASSIGN(const auto mask, checked_axes(q, q.attributes().ints("axes"), static_cast<int>(shape.size())));
            TensorType type{q.in(0).dtype, {}};
            for (size_t d = 0; d < shape.size(); ++d) {
              if (!mask[d])
                type.shape.push_back(shape[d]);
              else if (q.attributes().flag("keep"))
                type.shape.push_back(1);
            }
            return OutputTypes{type};
          },
          .reference = fused_sum_reference,
          .no_gradient = "regions are fused after the gradients are known",
          .sharding_of = fused_sum_rule,
          .flops = [](const OpQuery& q) { return static_cast<double>(element_count(*joined_shape(q))); },
          .samples = {"f32[4,6], f32[6] {expression=\"x0; x1; mul(%0,%1); exp(%2) -> %3\",axes=[1]}",
                      "f32[4,6], f32[4,1] {expression=\"x0; x1; mul(%0,%1) -> %2\",axes=[0],keep=false}"}};
}

}  // namespace epl
