// Short rows for elementwise primitives whose scalar expression is a single instruction.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/ir/op.h"

namespace epl::ops {

using GradientFunction = void (*)(Grad&);

// y = op(x). `range` bounds the samples, "(0.1..2)", where the op is defined on part of the line only.
template <ScalarOp op> OpDef unary(std::string doc, GradientFunction gradient, const std::string& range = "") {
  OpDef record;
  record.doc = std::move(doc);
  record.signature = "x -> y";
  record.scalar = [](ScalarExpr& s) { s.outputs = {s.emit(op, s.input(0))}; };
  record.gradient = gradient;
  record.samples = {"f32[4,7]" + range, "f64[3]" + range, "bf16[2,1,5]" + range};
  return record;
}

// y = op(a, b) with NumPy broadcasting.
template <ScalarOp op>
OpDef binary(std::string doc, GradientFunction gradient, const std::string& range_a = "",
             const std::string& range_b = "") {
  OpDef record;
  record.doc = std::move(doc);
  record.signature = "a, b -> y";
  record.scalar = [](ScalarExpr& s) { s.outputs = {s.emit(op, s.input(0), s.input(1))}; };
  record.gradient = gradient;
  record.samples = {"f32[4,7]" + range_a + ", f32[4,7]" + range_b, "f32[4,1]" + range_a + ", f32[1,5]" + range_b,
                    "f32[2,3,4]" + range_a + ", f32[]" + range_b, "f64[4]" + range_a + ", f64[3,1,4]" + range_b};
  return record;
}

// A test or a comparison: bool out, no gradient.
template <ScalarOp op> OpDef predicate(std::string doc, std::string signature, std::vector<std::string> samples) {
  OpDef record;
  record.doc = std::move(doc);
  record.signature = std::move(signature);
  record.truth = true;
  record.scalar = [](ScalarExpr& s) {
    constexpr bool two = op != ScalarOp::logical_not && op != ScalarOp::is_nan;
    s.outputs = {two ? s.emit(op, s.input(0), s.input(1)) : s.emit(op, s.input(0))};
  };
  record.no_gradient = "a truth value has no derivative";
  record.samples = std::move(samples);
  return record;
}

// Scalar expressions as formulas.
class Scalar {
 public:
  Scalar(ScalarExpr& s, int index) : s_(&s), index_(index) {}
  int index() const { return index_; }
  ScalarExpr& expression() const { return *s_; }
  Scalar number(double value) const { return {*s_, s_->constant(value)}; }
  Scalar operator()(ScalarOp op) const { return {*s_, s_->emit(op, index_)}; }  // op of this
  friend Scalar apply(ScalarOp op, Scalar a, Scalar b) { return {*a.s_, a.s_->emit(op, a.index_, b.index_)}; }
  friend Scalar select(Scalar condition, Scalar yes, Scalar no) {
    return {*yes.s_, yes.s_->emit(ScalarOp::select, condition.index_, yes.index_, no.index_)};
  }
  friend Scalar operator+(Scalar a, Scalar b) { return apply(ScalarOp::add, a, b); }
  friend Scalar operator-(Scalar a, Scalar b) { return apply(ScalarOp::sub, a, b); }
  friend Scalar operator*(Scalar a, Scalar b) { return apply(ScalarOp::mul, a, b); }
  friend Scalar operator/(Scalar a, Scalar b) { return apply(ScalarOp::div, a, b); }
  friend Scalar operator+(Scalar a, double b) { return a + a.number(b); }
  friend Scalar operator-(Scalar a, double b) { return a - a.number(b); }
  friend Scalar operator*(Scalar a, double b) { return a * a.number(b); }
  friend Scalar operator/(Scalar a, double b) { return a / a.number(b); }
  friend Scalar operator-(double a, Scalar b) { return b.number(a) - b; }
  friend Scalar operator>(Scalar a, double b) { return apply(ScalarOp::gt, a, a.number(b)); }
  friend Scalar operator<(Scalar a, double b) { return apply(ScalarOp::lt, a, a.number(b)); }

 private:
  ScalarExpr* s_;
  int index_;
};
inline Scalar scalar_input(ScalarExpr& s, int i) { return {s, s.input(i)}; }

// An op whose derivative is zero wherever it exists.
inline OpDef piecewise_constant(OpDef record) {
  record.gradient = nullptr;
  record.no_gradient = "piecewise constant: its derivative is zero wherever it has one";
  return record;
}

}  // namespace epl::ops
