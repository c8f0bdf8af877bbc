// Elementary functions of one operand.
#include <limits>

#include "core/ir/index_range.h"
#include "core/ir/sums.h"
#include "core/ops/elementwise.h"
#include "core/ops/indexing.h"

namespace epl {
using namespace ops;

static Result<OutputTypes> float_or_integer(const OpQuery& q) {
  if (q.in(0).dtype == DType::boolean) return misfit(q, "needs numbers");
  return same_as_first(q);
}

EPL_OP(neg) {
  OpDef record = unary<ScalarOp::neg>("y = -x.", [](Grad& g) { g.set(0, -g.upstream(0)); });
  record.infer = float_or_integer;
  return record;
}
EPL_OP(abs) {
  return unary<ScalarOp::abs>("y = |x|.", [](Grad& g) { g.set(0, g.upstream(0) * g.b.unary("sign", g.in(0))); });
}
EPL_OP(sign) { return piecewise_constant(unary<ScalarOp::sign>("y = -1, 0 or 1: the sign of x.", nullptr)); }
EPL_OP(floor) { return piecewise_constant(unary<ScalarOp::floor>("y = the largest integer not above x.", nullptr)); }
EPL_OP(ceil) { return piecewise_constant(unary<ScalarOp::ceil>("y = the smallest integer not below x.", nullptr)); }
EPL_OP(round) {
  return piecewise_constant(unary<ScalarOp::round>("y = the nearest integer; halves go to the even one.", nullptr));
}

EPL_OP(sqrt) {
  return unary<ScalarOp::sqrt>(
      "y = the square root of x. Where x is zero, a root of a sum of squares has a gradient of zero, as a norm has.",
      [](Grad& g) {
        const Var slope = g.upstream(0) * 0.5 / g.out(0), zero = g.b.like(slope, 0);
        const bool norm = is_base_of_norm(g.b.graph(), g.in(0).value());
        g.set(0, norm ? g.b.select(g.b.equal(g.out(0), zero), zero, slope) : unless_cut(g, slope));
      },
      "(0.1..2)");
}
EPL_OP(reciprocal) {
  return unary<ScalarOp::reciprocal>(
      "y = 1 / x.", [](Grad& g) { g.set(0, unless_cut(g, -(g.upstream(0) * g.out(0) * g.out(0)))); }, "(0.5..2)");
}
EPL_OP(exp) {
  return unary<ScalarOp::exp>("y = e to the power of x.",
                              [](Grad& g) { g.set(0, unless_cut(g, g.upstream(0) * g.out(0))); });
}
EPL_OP(expm1) {
  return unary<ScalarOp::expm1>("y = exp(x) - 1, exact near 0.",
                                [](Grad& g) { g.set(0, unless_cut(g, g.upstream(0) * (g.out(0) + 1))); });
}
EPL_OP(log) {
  return unary<ScalarOp::log>(
      "y = the natural logarithm of x.", [](Grad& g) { g.set(0, unless_cut(g, g.upstream(0) / g.in(0))); }, "(0.1..2)");
}
EPL_OP(log1p) {
  return unary<ScalarOp::log1p>(
      "y = log(1 + x), exact near 0.", [](Grad& g) { g.set(0, unless_cut(g, g.upstream(0) / (g.in(0) + 1))); },
      "(-0.5..2)");
}
EPL_OP(erf) {
  return unary<ScalarOp::erf>("y = the error function of x.", [](Grad& g) {
    const double two_over_sqrt_pi = 1.1283791670955126;
    g.set(0, g.upstream(0) * (two_over_sqrt_pi * g.b.exp(-(g.in(0) * g.in(0)))));
  });
}

EPL_OP(sin) {
  return unary<ScalarOp::sin>("y = sin(x).", [](Grad& g) { g.set(0, g.upstream(0) * g.b.unary("cos", g.in(0))); });
}
EPL_OP(cos) {
  return unary<ScalarOp::cos>("y = cos(x).", [](Grad& g) { g.set(0, -(g.upstream(0) * g.b.unary("sin", g.in(0)))); });
}
EPL_OP(tan) {
  return unary<ScalarOp::tan>(
      "y = tan(x).", [](Grad& g) { g.set(0, g.upstream(0) * (g.out(0) * g.out(0) + 1)); }, "(-1..1)");
}
EPL_OP(asin) {
  return unary<ScalarOp::asin>(
      "y = the angle in [-pi/2, pi/2] whose sine is x.",
      [](Grad& g) { g.set(0, unless_cut(g, g.upstream(0) / g.b.sqrt(1 - g.in(0) * g.in(0)))); }, "(-0.9..0.9)");
}
EPL_OP(acos) {
  return unary<ScalarOp::acos>(
      "y = the angle in [0, pi] whose cosine is x.",
      [](Grad& g) { g.set(0, unless_cut(g, -(g.upstream(0) / g.b.sqrt(1 - g.in(0) * g.in(0))))); }, "(-0.9..0.9)");
}
EPL_OP(atan) {
  return unary<ScalarOp::atan>("y = the angle in [-pi/2, pi/2] whose tangent is x.",
                               [](Grad& g) { g.set(0, unless_cut(g, g.upstream(0) / (g.in(0) * g.in(0) + 1))); });
}
EPL_OP(sinh) {
  return unary<ScalarOp::sinh>("y = sinh(x).", [](Grad& g) { g.set(0, g.upstream(0) * g.b.unary("cosh", g.in(0))); });
}
EPL_OP(cosh) {
  return unary<ScalarOp::cosh>("y = cosh(x).", [](Grad& g) { g.set(0, g.upstream(0) * g.b.unary("sinh", g.in(0))); });
}
EPL_OP(tanh) {
  return unary<ScalarOp::tanh>("y = tanh(x).", [](Grad& g) { g.set(0, g.upstream(0) * (1 - g.out(0) * g.out(0))); });
}
EPL_OP(asinh) {
  return unary<ScalarOp::asinh>("y = the number whose hyperbolic sine is x.",
                                [](Grad& g) { g.set(0, g.upstream(0) / g.b.sqrt(g.in(0) * g.in(0) + 1)); });
}
EPL_OP(acosh) {
  return unary<ScalarOp::acosh>(
      "y = the number not below 0 whose hyperbolic cosine is x.",
      [](Grad& g) { g.set(0, unless_cut(g, g.upstream(0) / g.b.sqrt(g.in(0) * g.in(0) - 1))); }, "(1.2..3)");
}
EPL_OP(atanh) {
  return unary<ScalarOp::atanh>(
      "y = the number whose hyperbolic tangent is x.",
      [](Grad& g) { g.set(0, unless_cut(g, g.upstream(0) / (1 - g.in(0) * g.in(0)))); }, "(-0.9..0.9)");
}
EPL_OP(sigmoid) {
  OpDef op = unary<ScalarOp::sigmoid>("y = 1 / (1 + exp(-x)).",
                                      [](Grad& g) { g.set(0, g.upstream(0) * (g.out(0) * (1 - g.out(0)))); });
  op.probabilities = true;
  return op;
}

EPL_OP(identity) {
  return {.doc = "y = x.",
          .signature = "x -> y",
          .scalar = [](ScalarExpr& s) { s.outputs = {s.input(0)}; },
          .gradient = [](Grad& g) { g.set(0, g.upstream(0)); },
          .view = true,
          .moves = Moves::all,
          .samples = {"f32[4,7]", "i64[3]", "bool[5]"}};
}
EPL_OP(stop_gradient) {
  return {.doc = "y = x; no gradient flows back through it.",
          .signature = "x -> y",
          .scalar = [](ScalarExpr& s) { s.outputs = {s.input(0)}; },
          .no_gradient = "stops gradients on purpose",
          .view = true,
          .samples = {"f32[4,7]"}};
}

// A loop is unrolled before data is there. So what it may be asked for is said beside the numbers that ask.
EPL_OP(trip_count) {
  return {.doc = "y = x: how often the loop `loop` runs. It is unrolled for `most` iterations, and more are refused.",
          .signature = "x -> y",
          .attributes = {{"most", int64_t{0}, true}, {"loop", std::string(), true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_TRY(integer_operand(q, 0));
            return same_as_first(q);
          },
          .scalar = [](ScalarExpr& s) { s.outputs = {s.input(0)}; },
          .no_gradient = "a number of iterations has no derivative",
          .view = true,
          .moves = Moves::all,
          .samples = {"i64[4](0..4) {most=4,loop=\"a\"}"}};
}

EPL_INDICES(trip_count) {
  const int64_t most = q.attributes().integer("most");
  return {.low = std::numeric_limits<int64_t>::min(),
          .high = most == std::numeric_limits<int64_t>::max() ? most : most + 1,
          .what = cat("trip count up to ", most),
          .exceeded = cat("more than the ", most, " iterations for which the loop ",
                          shown_plain(q.attributes().text("loop"), 200),
                          " is unrolled; max_trip_count (--max-trip-count N) allows more")};
}

EPL_OP(cast) {
  return {.doc =
              "y = x as elements of type `to`: to a float type rounds to nearest even, to an integer truncates and "
              "saturates, to bool tests for non-zero.",
          .signature = "x -> y",
          .attributes = {{"to", DType::f32, true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            return OutputTypes{{q.attributes().dtype("to"), q.in(0).shape}};
          },
          .scalar_of = [](ScalarExpr& s,
                          const OpQuery& q) { s.outputs = {s.cast(s.input(0), q.attributes().dtype("to"))}; },
          .gradient =
              [](Grad& g) {
                const DType type = g.in(0).dtype();  // a gradient of float32 is rounded where it is used
                g.set(0, g.upstream(0).dtype() == type_of_sums(type) ? g.upstream(0) : g.b.cast(g.upstream(0), type));
              },
          .moves = Moves::converted,
          .samples = {"f32[4,7] {to=@f64}", "f32[4,7] {to=@bf16}", "f32[5](-4..4) {to=@i32}", "i64[3] {to=@f32}",
                      "bool[6] {to=@f32}", "f32[6] {to=@bool}"}};
}

}  // namespace epl
