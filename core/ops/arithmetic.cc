// Arithmetic of two operands, with NumPy broadcasting. Integers wrap around; float types follow IEEE 754.
#include <optional>

#include "core/ops/common.h"
#include "core/ops/elementwise.h"

namespace epl {
using namespace ops;

// How a tie of max and min is shared: half of the gradient to each, as PyTorch does.
static void extremum_gradient(Grad& g) {
  const Var dy = g.upstream(0), a = g.in(0), b = g.in(1), zero = g.b.like(dy, 0);
  const Var tie = g.b.select(g.b.equal(a, b), dy * 0.5, zero);
  const bool maximum = g.node().op->name == "max";
  const Var a_wins = maximum ? a > b : a < b;
  if (g.needs(0)) g.set(0, g.b.select(a_wins, dy, tie));
  const Var b_wins = maximum ? a < b : a > b;
  if (g.needs(1)) g.set(1, g.b.select(b_wins, dy, tie));
}

// The exponent of a pow where it is one constant number.
static std::optional<double> constant_exponent(Grad& g) {
  const ValueInfo& exponent = g.b.graph().value(g.in(1).value());
  if (exponent.kind != ValueKind::constant || exponent.type.elements() != 1 || exponent.data.empty())
    return std::nullopt;
  return exponent.data.get(0);
}

static void pow_gradient(Grad& g) {
  const Var dy = g.upstream(0), a = g.in(0), b = g.in(1), zero = g.b.like(dy, 0);
  if (const auto exponent = constant_exponent(g); exponent && !g.needs(1)) {
    const double c = *exponent;
    const Var slope = c == 0 || c == 1 ? g.b.like(a, c)
                      : c == 2         ? a * 2
                      : c == 3         ? a * a * 3
                                       : g.b.pow(a, g.b.like(a, c - 1)) * c;
    const bool steep_at_zero = c != 0 && c < 1;
    if (steep_at_zero && is_base_of_norm(g.b.graph(), a.value())) {
      g.set(0, g.b.select(g.b.equal(a, zero), zero, dy * slope));
    } else {
      g.set(0, steep_at_zero ? unless_cut(g, dy * slope) : dy * slope);
    }
    return;
  }
  // Where b is 0 the derivative is 0 even at a = 0, where a^(b-1) is infinite; the same for the logarithm.
  if (g.needs(0)) g.set(0, g.b.select(g.b.equal(b, g.b.like(b, 0)), zero, unless_cut(g, dy * b * g.b.pow(a, b - 1))));
  if (g.needs(1)) {
    const Var safe = g.b.select(a > 0, a, g.b.like(a, 1));
    g.set(1, unless_cut(g, dy * g.out(0) * g.b.log(safe)));
  }
}

// x log y is selected away where both are zero.
static bool is_logarithm(const Graph& graph, Value value) {
  const ValueInfo& info = graph.value(value);
  if (info.kind != ValueKind::result) return false;
  const std::string& op = graph.node(info.producer).op->name;
  return op == "log" || op == "log1p";
}

EPL_OP(add) {
  return binary<ScalarOp::add>("y = a + b.", [](Grad& g) {
    g.set(0, g.upstream(0));
    g.set(1, g.upstream(0));
  });
}
EPL_OP(sub) {
  return binary<ScalarOp::sub>("y = a - b.", [](Grad& g) {
    g.set(0, g.upstream(0));
    if (g.needs(1)) g.set(1, -g.upstream(0));
  });
}
EPL_OP(mul) {
  return binary<ScalarOp::mul>("y = a * b.", [](Grad& g) {
    const auto times = [&](const Var& other) {
      const Var product = g.upstream(0) * other;
      return is_logarithm(g.b.graph(), other.value()) ? unless_cut(g, product) : product;
    };
    if (g.needs(0)) g.set(0, times(g.in(1)));
    if (g.needs(1)) g.set(1, times(g.in(0)));
  });
}
EPL_OP(div) {
  return binary<ScalarOp::div>(
      "y = a / b; integers round toward zero.",
      [](Grad& g) {
        const Var da = g.upstream(0) / g.in(1);
        const bool constant = g.b.graph().value(g.in(1).value()).kind == ValueKind::constant;
        g.set(0, constant ? da : unless_cut(g, da));
        if (g.needs(1)) g.set(1, unless_cut(g, -(da * g.out(0))));
      },
      "", "(0.5..2)");
}
EPL_OP(max) { return binary<ScalarOp::max>("y = the larger of a and b; NaN if either is NaN.", extremum_gradient); }
EPL_OP(min) { return binary<ScalarOp::min>("y = the smaller of a and b; NaN if either is NaN.", extremum_gradient); }
EPL_OP(pow) { return binary<ScalarOp::pow>("y = a to the power of b.", pow_gradient, "(0.2..2)"); }
EPL_OP(mod) {
  OpDef record = binary<ScalarOp::mod>(
      "y = a - b * floor(a / b): the remainder with the sign of b.",
      [](Grad& g) {
        g.set(0, g.upstream(0));
        if (g.needs(1)) g.set(1, g.upstream(0) * (g.out(0) - g.in(0)) / g.in(1));
      },
      "", "(0.9..2)");
  record.samples.push_back("i32[12](-9..9), i32[12](1..5)");
  return record;
}
EPL_OP(fmod) {
  OpDef record = binary<ScalarOp::fmod>(
      "y = a - b * trunc(a / b): the remainder with the sign of a.",
      [](Grad& g) {
        g.set(0, g.upstream(0));
        if (g.needs(1)) g.set(1, g.upstream(0) * (g.out(0) - g.in(0)) / g.in(1));
      },
      "", "(0.9..2)");
  record.samples.push_back("i32[12](-9..9), i32[12](1..5)");
  return record;
}
EPL_OP(atan2) {
  return binary<ScalarOp::atan2>(
      "y = the angle of the point (b, a).",
      [](Grad& g) {
        const Var a = g.in(0), b = g.in(1), square = a * a + b * b, zero = g.b.like(square, 0);
        const Var scaled = g.b.select(g.b.equal(square, zero), zero, g.upstream(0) / square);
        if (g.needs(0)) g.set(0, scaled * b);
        if (g.needs(1)) g.set(1, -(scaled * a));
      },
      "(0.2..2)", "(0.2..2)");
}

EPL_OP(where) {
  return {.doc = "y = a where the condition holds, else b; the three broadcast.",
          .signature = "condition, a, b -> y",
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            if (q.in(0).dtype != DType::boolean) return misfit(q, "the condition must be bool");
            if (q.in(1).dtype != q.in(2).dtype) return misfit(q, "element types of the choices differ");
            EPL_ASSIGN(Shape shape, broadcast_shapes(q.in(0).shape, q.in(1).shape));
            EPL_ASSIGN(shape, broadcast_shapes(shape, q.in(2).shape));
            return OutputTypes{{q.in(1).dtype, shape}};
          },
          .scalar = [](ScalarExpr& s) { s.outputs = {s.emit(ScalarOp::select, s.input(0), s.input(1), s.input(2))}; },
          .gradient =
              [](Grad& g) {
                const Var dy = g.upstream(0), zero = g.b.like(dy, 0);
                if (g.needs(1)) g.set(1, g.b.select(g.in(0), dy, zero));
                if (g.needs(2)) g.set(2, g.b.select(g.in(0), zero, dy));
              },
          .no_gradient_inputs = {0},
          .samples = {"bool[4,7], f32[4,7], f32[4,7]", "bool[4,1], f32[3], f32[]", "bool[3], i64[3], i64[3]"}};
}

static void clip_gradient(Grad& g) {
  if (!g.needs(1) && !g.needs(2)) {
    const Var dy = g.upstream(0), x = g.in(0), zero = g.b.like(dy, 0);
    Var dx = dy;
    if (g.has(1)) dx = g.b.select(x > g.in(1), dx, zero);
    if (g.has(2)) dx = g.b.select(x < g.in(2), dx, zero);
    return g.set(0, dx);
  }
  const Var raised = g.has(1) ? g.b.maximum(g.in(0), g.in(1)) : g.in(0);
  Var dy = g.upstream(0), zero = g.b.like(dy, 0), half = dy * 0.5;
  if (g.has(2)) {
    const Var tie = g.b.select(g.b.equal(raised, g.in(2)), half, zero);
    if (g.needs(2)) g.set(2, g.b.select(raised > g.in(2), dy, tie));
    dy = g.b.select(raised < g.in(2), dy, tie);
    half = dy * 0.5;
  }
  if (g.has(1)) {
    const Var tie = g.b.select(g.b.equal(g.in(0), g.in(1)), half, zero);
    if (g.needs(1)) g.set(1, g.b.select(g.in(0) < g.in(1), dy, tie));
    dy = g.b.select(g.in(0) > g.in(1), dy, tie);
  }
  g.set(0, dy);
}

EPL_OP(clip) {
  return {.doc = "y = x kept between the scalars low and high, either of which may be absent; high wins over low.",
          .signature = "x, low?, high? -> y",
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_TRY(same_dtypes(q));
            EPL_TRY(expect_shape(q, 1, {}, "low"));
            EPL_TRY(expect_shape(q, 2, {}, "high"));
            return same_as_first(q);
          },
          .body =
              [](Body& b) {
                Var y = b.in(0);
                if (b.has(1)) y = b.b.maximum(y, b.in(1));
                if (b.has(2)) y = b.b.minimum(y, b.in(2));
                b.set(0, b.has(1) || b.has(2) ? y : b.b.unary("identity", y));
              },
          // PyTorch's: at a bound that is a number nothing flows, as outside; a bound that is learnt is one of two
          // operands of max or min, which share a tie.
          .gradient = clip_gradient,
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            return elementwise_rule(input_types(q), output_types(q));
          },
          .samples = {"f32[4,7], f32[](-1..-0.5), f32[](0.5..1)", "f32[4,7], -, f32[](0..1)", "f32[5], f32[](0..1), -",
                      "f32[5]"}};
}

}  // namespace epl
