// Comparisons, logic and bits. None of them has a gradient.
#include "core/ops/common.h"
#include "core/ops/elementwise.h"

namespace epl {
using namespace ops;

static std::vector<std::string> comparison_samples() {
  return {"f32[4,7], f32[7]", "i64[12](0..4), i64[12](0..4)", "f32[3,1], f32[]"};
}
static std::vector<std::string> logic_samples() { return {"bool[4,7], bool[7]", "bool[5], bool[5]"}; }

EPL_OP(equal) { return predicate<ScalarOp::eq>("y = (a == b).", "a, b -> y", comparison_samples()); }
EPL_OP(not_equal) { return predicate<ScalarOp::ne>("y = (a != b).", "a, b -> y", comparison_samples()); }
EPL_OP(less) { return predicate<ScalarOp::lt>("y = (a < b).", "a, b -> y", comparison_samples()); }
EPL_OP(less_equal) { return predicate<ScalarOp::le>("y = (a <= b).", "a, b -> y", comparison_samples()); }
EPL_OP(greater) { return predicate<ScalarOp::gt>("y = (a > b).", "a, b -> y", comparison_samples()); }
EPL_OP(greater_equal) { return predicate<ScalarOp::ge>("y = (a >= b).", "a, b -> y", comparison_samples()); }
EPL_OP(logical_and) { return predicate<ScalarOp::logical_and>("y = a and b.", "a, b -> y", logic_samples()); }
EPL_OP(logical_or) { return predicate<ScalarOp::logical_or>("y = a or b.", "a, b -> y", logic_samples()); }
EPL_OP(logical_xor) { return predicate<ScalarOp::logical_xor>("y = either a or b.", "a, b -> y", logic_samples()); }
EPL_OP(logical_not) { return predicate<ScalarOp::logical_not>("y = not x.", "x -> y", {"bool[4,7]"}); }
EPL_OP(is_nan) { return predicate<ScalarOp::is_nan>("y = whether x is NaN.", "x -> y", {"f32[4,7]"}); }
EPL_OP(is_inf) {
  return {.doc = "y = whether x is infinite; `positive` and `negative` say which infinities count.",
          .signature = "x -> y",
          .attributes = {{"positive", true}, {"negative", true}},
          .truth = true,
          .scalar_of =
              [](ScalarExpr& s, const OpQuery& q) {
                const bool positive = q.attributes().flag("positive"), negative = q.attributes().flag("negative");
                const int x = s.input(0), infinite = s.emit(ScalarOp::is_inf, x), zero = s.constant(0);
                if (positive && negative)
                  s.outputs = {infinite};
                else if (positive || negative)
                  s.outputs = {
                      s.emit(ScalarOp::logical_and, infinite, s.emit(positive ? ScalarOp::gt : ScalarOp::lt, x, zero))};
                else
                  s.outputs = {s.emit(ScalarOp::ne, zero, zero)};
              },
          .no_gradient = "a truth value has no derivative",
          .samples = {"f32[4,7]", "f32[5] {negative=false}", "f32[5] {positive=false}"}};
}

template <ScalarOp op> static OpDef bits(std::string doc, std::string range = "(0..64)") {
  OpDef record = binary<op>(std::move(doc), nullptr);
  record.infer = [](const OpQuery& q) -> Result<OutputTypes> {
    EPL_TRY(same_dtypes(q));
    if (!is_integer(q.in(0).dtype)) return misfit(q, "needs integers");
    EPL_ASSIGN(Shape shape, broadcast_shapes(q.in(0).shape, q.in(1).shape));
    return OutputTypes{{q.in(0).dtype, shape}};
  };
  record.no_gradient = "integers have no derivative";
  record.samples = {"i32[4,7](0..64), i32[7]" + range, "u8[5](0..64), u8[5]" + range,
                    "i64[4,7](-64..64), i64[7](-80..80)", "i8[9](-128..127), i8[9](-12..12)"};
  return record;
}
EPL_OP(bit_and) { return bits<ScalarOp::bit_and>("y = a & b, bit by bit."); }
EPL_OP(bit_or) { return bits<ScalarOp::bit_or>("y = a | b, bit by bit."); }
EPL_OP(bit_xor) { return bits<ScalarOp::bit_xor>("y = a ^ b, bit by bit."); }
EPL_OP(shift_left) {
  return bits<ScalarOp::shift_left>("y = a shifted left by b bits; zero if b is negative or not less than the width.",
                                    "(0..3)");
}
EPL_OP(shift_right) {
  return bits<ScalarOp::shift_right>(
      "y = a shifted right by b bits, the sign coming in from the left; where b is negative or not less than the "
      "width, the sign alone. A uint64 counts as an int64.",
      "(0..3)");
}
EPL_OP(bit_not) {
  OpDef record = unary<ScalarOp::bit_not>("y = ~x, bit by bit.", nullptr);
  record.infer = [](const OpQuery& q) -> Result<OutputTypes> {
    if (!is_integer(q.in(0).dtype)) return misfit(q, "needs integers");
    return same_as_first(q);
  };
  record.no_gradient = "integers have no derivative";
  record.samples = {"i32[4,7](0..64)", "u8[5](0..64)"};
  return record;
}

}  // namespace epl
