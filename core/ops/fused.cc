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

}  // namespace epl
