// The steps of optimizers: elementwise, with the new state as further outputs. Formulas are those of
// core/base/update_step.h; the last operands are scalars that the host computes for each step, the rate first. With
// `holds` a negative rate says that the parameter is left alone: it and its state keep their bits, whatever the
// gradient is. core/ops/optimizer_bf16.cc has the same with states in bf16.
#include <string>
#include <vector>

#include "core/base/update_options.h"
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

// Instructions by name, so that the formulas read as such.
struct Term {
  ScalarExpr* s = nullptr;
  int at = 0;
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

// The formulas (core/base/update_step.h) as expressions. With `holds` and a negative rate the results are the old
// values, in operands 0, 2, 3, ...
template <class Step> void expression(ScalarExpr& s, const OpQuery& q) {
  const auto step = update::step_of<Step>(q.attributes());
  Term parameter{&s, s.input(0)}, gradient{&s, s.input(1)}, state[Step::states + 1], scalar[Step::scalars];
  for (int i = 0; i < Step::states; ++i) state[i] = {&s, s.input(2 + i)};
  for (int i = 0; i < Step::scalars; ++i) scalar[i] = {&s, s.input(2 + Step::states + i)};
  step(parameter, gradient, state, scalar);
  s.outputs = {parameter.at};
  for (int i = 0; i < Step::states; ++i) s.outputs.push_back(state[i].at);
  if (!q.attributes().flag("holds")) return;
  const int held = s.emit(ScalarOp::lt, scalar[0].at, s.constant(0));
  for (size_t i = 0; i < s.outputs.size(); ++i)
    s.outputs[i] = s.emit(ScalarOp::select, held, s.input(i == 0 ? 0 : static_cast<int>(i) + 1), s.outputs[i]);
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

}  // namespace

EPL_OP(sgd) {
  return {.doc = "parameter' = parameter - lr * (gradient + weight_decay * parameter).",
          .signature = "parameter, gradient, lr -> parameter_new",
          .attributes = {{"weight_decay", 0.0}, {"holds", false}},
          .infer = infer_step,
          .scalar_of = expression<update::Sgd>,
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
          .scalar_of = expression<update::Momentum>,
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
          .scalar_of = expression<update::Rmsprop>,
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
          .scalar_of = expression<update::Adagrad>,
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
          .scalar_of = expression<update::Adam>,
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
      .scalar_of = expression<update::Adamw>,
      .no_gradient = not_differentiable,
      .samples = adam_samples()};
}

}  // namespace epl
