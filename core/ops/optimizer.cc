// The steps of optimizers: elementwise, with the new state as further outputs. Formulas are those of torch.optim
// (PyTorch 2.15, documentation of SGD, Adam, AdamW, RMSprop, Adagrad); the last operands are scalars that the host
// computes for each step, the rate first. With `holds` a negative rate says that the parameter is left alone: it and
// its state keep their bits, whatever the gradient is.
#include <string>
#include <vector>

#include "core/ir/op.h"

namespace epl {
namespace {

// Every output is like the parameter; gradient and states have its type, scalars its element type.
Result<OutputTypes> infer_step(const OpQuery& query) {
  const TensorType& parameter = query.in(0);
  const int outputs = query.op().output_count();
  for (int i = 1; i < query.inputs(); ++i) {
    // Operands: parameter, gradient, a state for each output but the first, then scalars.
    const TensorType expected = i <= outputs ? parameter : TensorType{parameter.dtype, {}};
    if (query.in(i) != expected) {
      return invalid("operand ", i, " is ", query.in(i).text(), ", expected ", expected.text());
    }
  }
  return OutputTypes(outputs, parameter);
}

// Instructions by name, so that the formulas below read as such.
struct Term {
  ScalarExpr* s;
  int at;
};
Term operator+(Term a, Term b) { return {a.s, a.s->emit(ScalarOp::add, a.at, b.at)}; }
Term operator-(Term a, Term b) { return {a.s, a.s->emit(ScalarOp::sub, a.at, b.at)}; }
Term operator*(Term a, Term b) { return {a.s, a.s->emit(ScalarOp::mul, a.at, b.at)}; }
Term operator/(Term a, Term b) { return {a.s, a.s->emit(ScalarOp::div, a.at, b.at)}; }
Term operator*(double a, Term b) { return Term{b.s, b.s->constant(a)} * b; }
Term operator/(double a, Term b) { return Term{b.s, b.s->constant(a)} / b; }
Term operator+(Term a, double b) { return a + Term{a.s, a.s->constant(b)}; }
Term operator-(double a, Term b) { return Term{b.s, b.s->constant(a)} - b; }
Term root(Term a) { return {a.s, a.s->emit(ScalarOp::sqrt, a.at)}; }

// The results of a step, or with `holds` and a negative rate the old values in operands 0, 2, 3, ...
void give(ScalarExpr& s, const Attributes& options, Term rate, std::initializer_list<Term> results) {
  for (Term result : results) s.outputs.push_back(result.at);
  if (!options.flag("holds")) return;
  const int held = s.emit(ScalarOp::lt, rate.at, s.constant(0));
  for (size_t i = 0; i < s.outputs.size(); ++i)
    s.outputs[i] = s.emit(ScalarOp::select, held, s.input(i == 0 ? 0 : static_cast<int>(i) + 1), s.outputs[i]);
}

// The gradient with the coupled (L2) weight decay added.
Term decayed(Term gradient, Term parameter, double weight_decay) {
  return weight_decay == 0 ? gradient : gradient + weight_decay * parameter;
}

// Adam (Kingma and Ba 2015); `decoupled` is AdamW (Loshchilov and Hutter 2019).
void adam_step(ScalarExpr& s, const Attributes& options, bool decoupled) {
  Term w{&s, s.input(0)}, g{&s, s.input(1)}, m{&s, s.input(2)}, v{&s, s.input(3)};
  Term lr{&s, s.input(4)}, correction1{&s, s.input(5)}, correction2{&s, s.input(6)};
  const double beta1 = options.number("beta1"), beta2 = options.number("beta2");
  const double weight_decay = options.number("weight_decay");
  if (!decoupled) {
    g = decayed(g, w, weight_decay);
  } else if (weight_decay != 0) {
    w = w * (1 - weight_decay * lr);
  }
  Term mean = m + (1 - beta1) * (g - m);
  Term square = beta2 * v + (1 - beta2) * (g * g);
  Term spread = root(square) * (1 / root(correction2)) + options.number("epsilon");
  Term next = w - (lr / correction1) * (mean / spread);
  give(s, options, lr, {next, mean, square});
}

// Functions, not objects: nothing of ours runs when the library is loaded.
std::vector<Option> adam_options() {
  return {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.0}, {"holds", false}};
}
std::vector<std::string> adam_samples() {
  return {
      "f32[4,7], f32[4,7], f32[4,7], f32[4,7](0.1..2), f32[](0.01..0.1), f32[](0.1..0.9), f32[](0.1..0.9) "
      "{weight_decay=0.1}",
      "f64[5], f64[5], f64[5], f64[5](0.1..2), f64[](0.01..0.1), f64[](0.1..0.9), f64[](0.1..0.9) {}",
      "f32[4,7], f32[4,7], f32[4,7], f32[4,7](0.1..2), f32[](-1..-0.5), f32[](0.1..0.9), f32[](0.1..0.9) {holds=true}",
      "f32[4,7], f32[4,7], f32[4,7], f32[4,7](0.1..2), f32[](0.01..0.1), f32[](0.1..0.9), f32[](0.1..0.9) "
      "{holds=true}"};
}
constexpr const char* not_differentiable = "an optimizer's step ends the graph";

// A step along the gradient over the root of its squares, as RMSprop and Adagrad gather them.
void scaled_step(ScalarExpr& s, const Attributes& options, Term w, Term g, Term squares, Term lr) {
  Term next = w - lr * (g / (root(squares) + options.number("epsilon")));
  give(s, options, lr, {next, squares});
}

}  // namespace

EPL_OP(sgd) {
  return {.doc = "parameter' = parameter - lr * (gradient + weight_decay * parameter).",
          .signature = "parameter, gradient, lr -> parameter_new",
          .attributes = {{"weight_decay", 0.0}, {"holds", false}},
          .infer = infer_step,
          .scalar_of =
              [](ScalarExpr& s, const OpQuery& q) {
                Term w{&s, s.input(0)}, g{&s, s.input(1)}, lr{&s, s.input(2)};
                give(s, q.attributes(), lr, {w - lr * decayed(g, w, q.attributes().number("weight_decay"))});
              },
          .no_gradient = not_differentiable,
          .samples = {"f32[4,7], f32[4,7], f32[](0.01..0.1) {weight_decay=0.1}", "f64[5], f64[5], f64[](0.01..0.1) {}",
                      "f32[4,7], f32[4,7], f32[](-1..-0.5) {holds=true}"}};
}

EPL_OP(momentum) {
  return {.doc =
              "momentum' = m * momentum + share * g, g = gradient + weight_decay * parameter; parameter' = parameter - "
              "lr * "
              "momentum', or with `nesterov` parameter - lr * (g + m * momentum'). `share` is 1 - dampening, 1 at the "
              "first "
              "step.",
          .signature = "parameter, gradient, momentum, lr, share -> parameter_new, momentum_new",
          .attributes = {{"momentum", 0.9}, {"nesterov", false}, {"weight_decay", 0.0}, {"holds", false}},
          .infer = infer_step,
          .scalar_of =
              [](ScalarExpr& s, const OpQuery& q) {
                Term w{&s, s.input(0)}, g{&s, s.input(1)}, buffer{&s, s.input(2)}, lr{&s, s.input(3)},
                    share{&s, s.input(4)};
                const double momentum = q.attributes().number("momentum");
                g = decayed(g, w, q.attributes().number("weight_decay"));
                Term next = momentum * buffer + share * g;
                Term direction = q.attributes().flag("nesterov") ? g + momentum * next : next;
                give(s, q.attributes(), lr, {w - lr * direction, next});
              },
          .no_gradient = not_differentiable,
          .samples = {"f32[4,7], f32[4,7], f32[4,7], f32[](0.01..0.1), f32[](0.1..1) {weight_decay=0.1}",
                      "f64[5], f64[5], f64[5], f64[](0.01..0.1), f64[](0.1..1) {nesterov=true}",
                      "f32[4,7], f32[4,7], f32[4,7], f32[](-1..-0.5), f32[](0.1..1) {holds=true}"}};
}

EPL_OP(rmsprop) {
  return {.doc =
              "square' = alpha * square + (1 - alpha) * g^2, g = gradient + weight_decay * parameter; parameter' = "
              "parameter - "
              "lr * g / (sqrt(square') + epsilon).",
          .signature = "parameter, gradient, square, lr -> parameter_new, square_new",
          .attributes = {{"alpha", 0.99}, {"epsilon", 1e-8}, {"weight_decay", 0.0}, {"holds", false}},
          .infer = infer_step,
          .scalar_of =
              [](ScalarExpr& s, const OpQuery& q) {
                Term w{&s, s.input(0)}, g{&s, s.input(1)}, square{&s, s.input(2)}, lr{&s, s.input(3)};
                const double alpha = q.attributes().number("alpha");
                g = decayed(g, w, q.attributes().number("weight_decay"));
                scaled_step(s, q.attributes(), w, g, alpha * square + (1 - alpha) * (g * g), lr);
              },
          .no_gradient = not_differentiable,
          .samples = {"f32[4,7], f32[4,7], f32[4,7](0.1..2), f32[](0.01..0.1) {weight_decay=0.1}",
                      "f64[5], f64[5], f64[5](0.1..2), f64[](0.01..0.1) {alpha=0.5}"}};
}

EPL_OP(adagrad) {
  return {.doc =
              "sum' = sum + g^2, g = gradient + weight_decay * parameter; parameter' = parameter - rate * g / "
              "(sqrt(sum') + "
              "epsilon).",
          .signature = "parameter, gradient, sum, rate -> parameter_new, sum_new",
          .attributes = {{"epsilon", 1e-10}, {"weight_decay", 0.0}, {"holds", false}},
          .infer = infer_step,
          .scalar_of =
              [](ScalarExpr& s, const OpQuery& q) {
                Term w{&s, s.input(0)}, g{&s, s.input(1)}, sum{&s, s.input(2)}, rate{&s, s.input(3)};
                g = decayed(g, w, q.attributes().number("weight_decay"));
                scaled_step(s, q.attributes(), w, g, sum + g * g, rate);
              },
          .no_gradient = not_differentiable,
          .samples = {"f32[4,7], f32[4,7], f32[4,7](0.1..2), f32[](0.01..0.1) {weight_decay=0.1}",
                      "f64[5], f64[5], f64[5](0.1..2), f64[](0.01..0.1) {}"}};
}

EPL_OP(adam) {
  return {.doc =
              "mean' = lerp(mean, g, 1 - beta1), square' = beta2 * square + (1 - beta2) * g^2, g = gradient + "
              "weight_decay * "
              "parameter; parameter' = parameter - lr / correction1 * mean' / (sqrt(square' / correction2) + epsilon).",
          .signature =
              "parameter, gradient, mean, square, lr, correction1, correction2 -> parameter_new, mean_new, square_new",
          .attributes = adam_options(),
          .infer = infer_step,
          .scalar_of = [](ScalarExpr& s, const OpQuery& q) { adam_step(s, q.attributes(), false); },
          .no_gradient = not_differentiable,
          .samples = adam_samples()};
}

EPL_OP(adamw) {
  return {
      .doc = "As adam with the decay apart from the gradient: parameter is first multiplied by 1 - lr * weight_decay.",
      .signature =
          "parameter, gradient, mean, square, lr, correction1, correction2 -> parameter_new, mean_new, square_new",
      .attributes = adam_options(),
      .infer = infer_step,
      .scalar_of = [](ScalarExpr& s, const OpQuery& q) { adam_step(s, q.attributes(), true); },
      .no_gradient = not_differentiable,
      .samples = adam_samples()};
}

}  // namespace epl
