// Activation functions, as scalar expressions. Float operands only.
#include <cmath>
#include <numbers>

#include "core/base/shown.h"
#include "core/ops/common.h"
#include "core/ops/elementwise.h"

namespace epl {
using namespace ops;

namespace {
Result<OutputTypes> float_infer(const OpQuery& q) {
  EPL_TRY(same_dtypes(q, true));
  TensorType type = q.in(0);
  for (int i = 1; i < q.inputs(); ++i) {
    EPL_ASSIGN(type.shape, broadcast_shapes(type.shape, q.in(i).shape));
  }
  return OutputTypes{type};
}

Scalar softplus_of(Scalar x) {
  const Scalar zero = x.number(0);
  return x(ScalarOp::abs)(ScalarOp::neg)(ScalarOp::exp)(ScalarOp::log1p) + apply(ScalarOp::max, x, zero);
}
Var softplus_of(Grad& g, const Var& x) { return g.b.emit("softplus", {x}); }
// dy where the condition holds, else `other`.
Var choose(Grad& g, const Var& condition, const Var& other) { return g.b.select(condition, g.upstream(0), other); }

std::vector<std::string> activation_samples(const std::string& more = "") {
  std::vector<std::string> samples = {"f32[4,7](-3..3)", "f64[2,3,5](-3..3)", "bf16[8](-3..3)"};
  if (!more.empty()) samples.push_back("f32[4,7](-3..3) " + more);
  return samples;
}

const double sqrt_half = std::numbers::sqrt2 / 2;
const double tanh_scale = 0.7978845608028654;  // sqrt(2 / pi)
const double tanh_cubic = 0.044715;

bool tanh_form(const Attributes& a) { return a.text("approximate") == "tanh"; }
Status check_approximate(const OpQuery& q) {
  const std::string& form = q.attributes().text("approximate");
  if (form == "none" || form == "tanh") return {};
  return misfit(q, "approximate ", shown(form, 200), " is not none or tanh");
}
Result<OutputTypes> gelu_infer(const OpQuery& q) {
  EPL_TRY(check_approximate(q));
  return float_infer(q);
}
}  // namespace

EPL_OP(relu) {
  return {.doc = "y = max(x, 0).",
          .signature = "x -> y",
          .scalar = [](ScalarExpr& s) { s.outputs = {s.emit(ScalarOp::max, s.input(0), s.constant(0))}; },
          .gradient = [](Grad& g) { g.set(0, choose(g, g.out(0) > 0, g.b.like(g.upstream(0), 0))); },
          .samples = {"f32[4,7]", "bf16[3,5]", "i32[6](-5..5)"}};
}

EPL_OP(leaky_relu) {
  return {.doc = "y = x where x > 0, else alpha * x.",
          .signature = "x -> y",
          .attributes = {{"alpha", 0.01}},
          .infer = float_infer,
          .scalar_of =
              [](ScalarExpr& s, const OpQuery& q) {
                const Scalar x = scalar_input(s, 0);
                s.outputs = {select(x > 0, x, x * q.attributes().number("alpha")).index()};
              },
          .gradient = [](Grad& g) { g.set(0, choose(g, g.in(0) > 0, g.upstream(0) * g.attributes().number("alpha"))); },
          .samples = activation_samples("{alpha=0.3}")};
}

EPL_OP(prelu) {
  return {.doc = "y = x where x > 0, else slope * x; slope broadcasts to x.",
          .signature = "x, slope -> y",
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_ASSIGN(OutputTypes types, float_infer(q));
            if (types[0].shape != q.in(0).shape) return misfit(q, "slope does not broadcast to x");
            return types;
          },
          .scalar =
              [](ScalarExpr& s) {
                const Scalar x = scalar_input(s, 0), slope = scalar_input(s, 1);
                s.outputs = {select(x > 0, x, slope * x).index()};
              },
          .gradient =
              [](Grad& g) {
                const Var positive = g.in(0) > 0, dy = g.upstream(0);
                if (g.needs(0)) g.set(0, choose(g, positive, dy * g.in(1)));
                if (g.needs(1)) g.set(1, g.b.select(positive, g.b.like(dy, 0), dy * g.in(0)));
              },
          .samples = {"f32[4,7], f32[7]", "f32[2,3,4], f32[3,1]", "f32[5], f32[]"}};
}

EPL_OP(elu) {
  return {.doc = "y = x where x > 0, else alpha * (exp(x) - 1).",
          .signature = "x -> y",
          .attributes = {{"alpha", 1.0}},
          .infer = float_infer,
          .scalar_of =
              [](ScalarExpr& s, const OpQuery& q) {
                const Scalar x = scalar_input(s, 0);
                s.outputs = {select(x > 0, x, x(ScalarOp::expm1) * q.attributes().number("alpha")).index()};
              },
          .gradient =
              [](Grad& g) {
                g.set(0, choose(g, g.in(0) > 0, g.upstream(0) * (g.out(0) + g.attributes().number("alpha"))));
              },
          .samples = activation_samples("{alpha=0.7}")};
}

EPL_OP(selu) {
  return {.doc = "y = gamma * (x where x > 0, else alpha * (exp(x) - 1)).",
          .signature = "x -> y",
          .attributes = {{"alpha", 1.6732632423543772}, {"gamma", 1.0507009873554805}},
          .infer = float_infer,
          .scalar_of =
              [](ScalarExpr& s, const OpQuery& q) {
                const Scalar x = scalar_input(s, 0);
                const double alpha = q.attributes().number("alpha"), gamma = q.attributes().number("gamma");
                s.outputs = {(select(x > 0, x, x(ScalarOp::expm1) * alpha) * gamma).index()};
              },
          .gradient =
              [](Grad& g) {
                const double alpha = g.attributes().number("alpha"), gamma = g.attributes().number("gamma");
                const Var slope = g.b.select(g.in(0) > 0, g.b.like(g.in(0), gamma), g.out(0) + alpha * gamma);
                g.set(0, g.upstream(0) * slope);
              },
          .samples = activation_samples("{alpha=1.5,gamma=1.1}")};
}

EPL_OP(celu) {
  return {.doc = "y = x where x > 0, else alpha * (exp(x / alpha) - 1).",
          .signature = "x -> y",
          .attributes = {{"alpha", 1.0}},
          .infer = float_infer,
          .scalar_of =
              [](ScalarExpr& s, const OpQuery& q) {
                const double alpha = q.attributes().number("alpha");
                const Scalar x = scalar_input(s, 0);
                s.outputs = {select(x > 0, x, (x / alpha)(ScalarOp::expm1)*alpha).index()};
              },
          .gradient =
              [](Grad& g) {
                const Var slope = g.out(0) * (1 / g.attributes().number("alpha")) + 1;
                g.set(0, choose(g, g.in(0) > 0, g.upstream(0) * slope));
              },
          .samples = activation_samples("{alpha=1.7}")};
}

EPL_OP(hard_sigmoid) {
  return {.doc = "y = alpha * x + beta kept between 0 and 1.",
          .signature = "x -> y",
          .attributes = {{"alpha", 0.2}, {"beta", 0.5}},
          .infer = float_infer,
          .scalar_of =
              [](ScalarExpr& s, const OpQuery& q) {
                const Scalar x = scalar_input(s, 0);
                const Scalar line = x * q.attributes().number("alpha") + q.attributes().number("beta");
                s.outputs = {apply(ScalarOp::max, apply(ScalarOp::min, line, x.number(1)), x.number(0)).index()};
              },
          .gradient =
              [](Grad& g) {
                const Var y = g.out(0), zero = g.b.like(y, 0), slope = g.upstream(0) * g.attributes().number("alpha");
                g.set(0, g.b.select(y > 0, g.b.select(y < 1, slope, zero), zero));
              },
          .samples = activation_samples("{alpha=0.6,beta=0.4}")};
}

EPL_OP(hard_swish) {
  return {.doc = "y = x * (x / 6 + 1/2 kept between 0 and 1).",
          .signature = "x -> y",
          .infer = float_infer,
          .scalar =
              [](ScalarExpr& s) {
                const Scalar x = scalar_input(s, 0), line = x * (1.0 / 6) + 0.5;
                s.outputs = {(x * apply(ScalarOp::max, apply(ScalarOp::min, line, x.number(1)), x.number(0))).index()};
              },
          .gradient =
              [](Grad& g) {
                const Var x = g.in(0), dy = g.upstream(0), zero = g.b.like(x, 0), inner = dy * (x * (1.0 / 3) + 0.5);
                g.set(0, g.b.select(x > -3, g.b.select(x < 3, inner, dy), zero));
              },
          .samples = {"f32[4,7](-5..5)", "f64[9](-5..5)"}};
}

EPL_OP(thresholded_relu) {
  return {
      .doc = "y = x where x > alpha, else 0.",
      .signature = "x -> y",
      .attributes = {{"alpha", 1.0}},
      .infer = float_infer,
      .scalar_of =
          [](ScalarExpr& s, const OpQuery& q) {
            const Scalar x = scalar_input(s, 0);
            s.outputs = {select(x > q.attributes().number("alpha"), x, x.number(0)).index()};
          },
      .gradient =
          [](Grad& g) { g.set(0, choose(g, g.in(0) > g.attributes().number("alpha"), g.b.like(g.upstream(0), 0))); },
      .samples = activation_samples("{alpha=0.5}")};
}

EPL_OP(softplus) {
  return {.doc = "y = log(1 + exp(x)), for large |x| too.",
          .signature = "x -> y",
          .infer = float_infer,
          .scalar = [](ScalarExpr& s) { s.outputs = {softplus_of(scalar_input(s, 0)).index()}; },
          .gradient = [](Grad& g) { g.set(0, g.upstream(0) * g.b.sigmoid(g.in(0))); },
          .samples = activation_samples()};
}

EPL_OP(softsign) {
  return {.doc = "y = x / (1 + |x|).",
          .signature = "x -> y",
          .infer = float_infer,
          .scalar =
              [](ScalarExpr& s) {
                const Scalar x = scalar_input(s, 0);
                s.outputs = {(x / (x(ScalarOp::abs) + 1)).index()};
              },
          .gradient =
              [](Grad& g) {
                const Var below = g.b.unary("abs", g.in(0)) + 1;
                g.set(0, g.upstream(0) / (below * below));
              },
          .samples = activation_samples()};
}

EPL_OP(silu) {
  return {.doc = "y = x * sigmoid(x).",
          .signature = "x -> y",
          .infer = float_infer,
          .scalar =
              [](ScalarExpr& s) {
                const Scalar x = scalar_input(s, 0);
                s.outputs = {(x * x(ScalarOp::sigmoid)).index()};
              },
          .gradient =
              [](Grad& g) {
                const Var x = g.in(0), gate = g.b.sigmoid(x);
                g.set(0, g.upstream(0) * (gate * (x * (1 - gate) + 1)));
              },
          .samples = activation_samples()};
}

EPL_OP(mish) {
  return {.doc = "y = x * tanh(softplus(x)).",
          .signature = "x -> y",
          .infer = float_infer,
          .scalar =
              [](ScalarExpr& s) {
                const Scalar x = scalar_input(s, 0);
                s.outputs = {(x * softplus_of(x)(ScalarOp::tanh)).index()};
              },
          .gradient =
              [](Grad& g) {
                const Var x = g.in(0), t = g.b.tanh(softplus_of(g, x));
                g.set(0, g.upstream(0) * (t + x * g.b.sigmoid(x) * (1 - t * t)));
              },
          .samples = activation_samples()};
}

EPL_OP(gelu) {
  return {.doc =
              "y = x * Phi(x), Phi the normal distribution function, or its `tanh` approximation (Hendrycks and "
              "Gimpel, 2016).",
          .signature = "x -> y",
          .attributes = {{"approximate", "none"}},
          .infer = gelu_infer,
          .scalar_of =
              [](ScalarExpr& s, const OpQuery& q) {
                const Scalar x = scalar_input(s, 0);
                const Scalar inner = tanh_form(q.attributes())
                                         ? ((x + x * x * x * tanh_cubic) * tanh_scale)(ScalarOp::tanh)
                                         : (x * sqrt_half)(ScalarOp::erf);
                s.outputs = {(x * 0.5 * (inner + 1)).index()};
              },
          .gradient = [](Grad& g) { g.set(0, g.b.emit("gelu_grad", {g.upstream(0), g.in(0)}, g.attributes())); },
          .samples = activation_samples("{approximate=\"tanh\"}")};
}

EPL_OP(gelu_grad) {
  return {.doc = "dx = dy times the derivative of gelu at x.",
          .signature = "dy, x -> dx",
          .attributes = {{"approximate", "none"}},
          .infer = gelu_infer,
          .scalar_of =
              [](ScalarExpr& s, const OpQuery& q) {
                const Scalar dy = scalar_input(s, 0), x = scalar_input(s, 1), square = x * x;
                if (tanh_form(q.attributes())) {
                  const Scalar t = ((x + square * x * tanh_cubic) * tanh_scale)(ScalarOp::tanh);
                  const Scalar inner = (square * (3 * tanh_cubic) + 1) * tanh_scale;
                  s.outputs = {(dy * ((t + 1) * 0.5 + x * 0.5 * (1 - t * t) * inner)).index()};
                } else {
                  const double density = 0.3989422804014327;  // 1 / sqrt(2 pi)
                  const Scalar below = ((x * sqrt_half)(ScalarOp::erf) + 1) * 0.5;
                  s.outputs = {(dy * (below + x * ((square * -0.5)(ScalarOp::exp)*density))).index()};
                }
              },
          .no_gradient = "a gradient of a gradient is not built",
          .samples = {"f32[4,7], f32[4,7](-3..3)", "f32[9], f32[9](-3..3) {approximate=\"tanh\"}"}};
}

}  // namespace epl
