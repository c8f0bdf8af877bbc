// Operators that work element by element: an ONNX name and the op it is here.
#include <algorithm>

#include "core/ir/op.h"
#include "core/ir/sums.h"
#include "frontends/onnx/onnx_op.h"
#include "frontends/onnx/ops/types.h"

namespace epl::onnx {
namespace {

// The name of an op as a template argument.
template <size_t size> struct Name {
  constexpr Name(const char (&characters)[size]) { std::ranges::copy(characters, text); }
  char text[size];
};

template <Name op> void unary(Import& i) { i.set(0, i.b.unary(op.text, i.in(0))); }
template <Name op> void binary(Import& i) { i.set(0, i.b.emit(op.text, {i.in(0), i.in(1)})); }
template <Name op> void variadic(Import& i) {
  Var total = i.in(0);
  for (int k = 1; k < i.inputs(); ++k) total = i.b.emit(op.text, {total, i.in(k)});
  if (i.inputs() == 1) total = i.b.unary("identity", total);
  i.set(0, total);
}

// The operand of two that is a number of the model, so that the operator bounds the other one; -1 where neither is.
// PyTorch's newer exporter writes clamp as Max and Min. A bound has no part in the gradient of a tie.
int bound_of(Import& i) {
  for (int k = 0; k < 2 && i.inputs() == 2; ++k) {
    const bool number = i.constant(k) != nullptr && i.type(k).ndim() == 0 && is_float(i.type(k).dtype);
    if (number && i.constant(1 - k) == nullptr && i.type(0).dtype == i.type(1).dtype) return k;
  }
  return -1;
}

// Times a number.
Var sum_of_operands(Import& i, double factor) {
  Builder& b = i.b;
  return in_type_of_sums(b, i.in(0), [&](const Var& first) {
    Var total = first;
    for (int k = 1; k < i.inputs(); ++k) total = total + b.cast(i.in(k), total.dtype());
    return factor == 1 && i.inputs() > 1 ? total : total * factor;
  });
}

}  // namespace

EPL_ONNX_OP(Abs) { return {.run = unary<"abs">}; }
EPL_ONNX_OP(Neg) { return {.run = unary<"neg">}; }
EPL_ONNX_OP(Sign) { return {.run = unary<"sign">}; }
EPL_ONNX_OP(Sqrt) { return {.run = unary<"sqrt">}; }
EPL_ONNX_OP(Reciprocal) { return {.run = unary<"reciprocal">}; }
EPL_ONNX_OP(Exp) { return {.run = unary<"exp">}; }
EPL_ONNX_OP(Log) { return {.run = unary<"log">}; }
EPL_ONNX_OP(Erf) { return {.run = unary<"erf">}; }
EPL_ONNX_OP(Sin) { return {.run = unary<"sin">}; }
EPL_ONNX_OP(Cos) { return {.run = unary<"cos">}; }
EPL_ONNX_OP(Tan) { return {.run = unary<"tan">}; }
EPL_ONNX_OP(Asin) { return {.run = unary<"asin">}; }
EPL_ONNX_OP(Acos) { return {.run = unary<"acos">}; }
EPL_ONNX_OP(Atan) { return {.run = unary<"atan">}; }
EPL_ONNX_OP(Sinh) { return {.run = unary<"sinh">}; }
EPL_ONNX_OP(Cosh) { return {.run = unary<"cosh">}; }
EPL_ONNX_OP(Tanh) { return {.run = unary<"tanh">}; }
EPL_ONNX_OP(Asinh) { return {.run = unary<"asinh">}; }
EPL_ONNX_OP(Acosh) { return {.run = unary<"acosh">}; }
EPL_ONNX_OP(Atanh) { return {.run = unary<"atanh">}; }
EPL_ONNX_OP(Sigmoid) { return {.run = unary<"sigmoid">}; }
EPL_ONNX_OP(Floor) { return {.run = unary<"floor">}; }
EPL_ONNX_OP(Ceil) { return {.run = unary<"ceil">}; }
EPL_ONNX_OP(Round) { return {.run = unary<"round">}; }
EPL_ONNX_OP(Relu) { return {.run = unary<"relu">}; }
EPL_ONNX_OP(Softplus) { return {.run = unary<"softplus">}; }
EPL_ONNX_OP(Softsign) { return {.run = unary<"softsign">}; }
EPL_ONNX_OP(Mish) { return {.run = unary<"mish">}; }
EPL_ONNX_OP(HardSwish) { return {.run = unary<"hard_swish">}; }
EPL_ONNX_OP(IsNaN) { return {.run = unary<"is_nan">}; }
EPL_ONNX_OP(Not) { return {.run = unary<"logical_not">}; }
EPL_ONNX_OP(BitwiseNot) { return {.run = unary<"bit_not">}; }
EPL_ONNX_OP(Identity) { return {.run = unary<"identity">}; }
EPL_ONNX_OP(Add) { return {.run = binary<"add">}; }
EPL_ONNX_OP(Sub) { return {.run = binary<"sub">}; }
EPL_ONNX_OP(Mul) { return {.run = binary<"mul">}; }
EPL_ONNX_OP(Div) { return {.run = binary<"div">}; }
EPL_ONNX_OP(Max) {
  return {.run = [](Import& i) {
    const int low = bound_of(i);
    low < 0 ? variadic<"max">(i) : i.set(0, i.b.emit("clip", {i.in(1 - low), i.in(low), Var()}));
  }};
}
EPL_ONNX_OP(Min) {
  return {.run = [](Import& i) {
    const int high = bound_of(i);
    high < 0 ? variadic<"min">(i) : i.set(0, i.b.emit("clip", {i.in(1 - high), Var(), i.in(high)}));
  }};
}
EPL_ONNX_OP(Sum) {
  return {.run = [](Import& i) { i.inputs() < 3 ? variadic<"add">(i) : i.set(0, sum_of_operands(i, 1)); }};
}
EPL_ONNX_OP(Equal) { return {.run = binary<"equal">}; }
EPL_ONNX_OP(Less) { return {.run = binary<"less">}; }
EPL_ONNX_OP(LessOrEqual) { return {.run = binary<"less_equal">}; }
EPL_ONNX_OP(Greater) { return {.run = binary<"greater">}; }
EPL_ONNX_OP(GreaterOrEqual) { return {.run = binary<"greater_equal">}; }
EPL_ONNX_OP(And) { return {.run = binary<"logical_and">}; }
EPL_ONNX_OP(Or) { return {.run = binary<"logical_or">}; }
EPL_ONNX_OP(Xor) { return {.run = binary<"logical_xor">}; }
EPL_ONNX_OP(BitwiseAnd) { return {.run = binary<"bit_and">}; }
EPL_ONNX_OP(BitwiseOr) { return {.run = binary<"bit_or">}; }
EPL_ONNX_OP(BitwiseXor) { return {.run = binary<"bit_xor">}; }
EPL_ONNX_OP(PRelu) {
  return {.weights = {1}, .run = [](Import& i) {
            if (is_float(i.type(0).dtype)) return binary<"prelu">(i);
            const Var x = i.in(0);
            i.set(0, i.b.select(x < 0.0, x * i.in(1), x));
          }};
}

EPL_ONNX_OP(Mean) {
  return {.run = [](Import& i) { i.set(0, sum_of_operands(i, 1.0 / i.inputs())); }};
}

namespace {

// Whether each number is one of the type's own.
bool holds(const epl::Tensor& value, DType dtype) {
  epl::Tensor one(TensorType{dtype, {}});
  for (int64_t k = 0; k < value.elements(); ++k) {
    one.set(0, value.get(k));
    if (one.get(0) != value.get(k)) return false;
  }
  return true;
}

// The type in which a power is computed. Integers stay integers; of 64 bits without a sign are exponents that no other
// integer holds.
DType power_type(DType base, DType exponent, const epl::Tensor* known) {
  if (base == exponent) return base;
  if (is_integer(base) && is_integer(exponent) && exponent != DType::u64 && base != DType::u64) return DType::i64;
  if (is_float(base) && known && known->elements() <= 64 && holds(*known, base)) return base;
  return real_type(base, exponent);
}

}  // namespace

// The exponent may have another type than the base, which the result has.
EPL_ONNX_OP(Pow) {
  return {.run = [](Import& i) {
    Builder& b = i.b;
    const Var base = i.in(0), exponent = i.in(1);
    DType type = power_type(base.dtype(), exponent.dtype(), i.constant(1));
    const bool cut = is_integer(base.dtype()) && is_float(type);
    if (cut) type = DType::f64;
    Var power = b.pow(b.cast(base, type), b.cast(exponent, type));
    if (cut) {  // to an integer: 9^3 must not be 728 because a rounding made it a little less than 729
      const Var integer = b.emit("round", {power});
      const Var far = b.emit("abs", {power - integer}), all = b.emit("abs", {integer});
      power = b.select(b.emit("less_equal", {far, all * 0x1p-40}), integer, power);
    }
    i.set(0, b.cast(power, base.dtype()));
  }};
}

EPL_ONNX_OP(Mod) {
  return {.run = [](Import& i) { i.set(0, i.b.emit(i.integer("fmod", 0) ? "fmod" : "mod", {i.in(0), i.in(1)})); }};
}

EPL_ONNX_OP(BitShift) {
  return {.run = [](Import& i) {
    const Var x = i.in(0), bits = i.in(1);
    const bool left = i.choice("direction", {"LEFT", "RIGHT"}) == "LEFT";
    if (left || x.dtype() != DType::u64) {
      i.set(0, i.b.emit(left ? "shift_left" : "shift_right", {x, bits}));
      return;
    }
    // shift_right brings the highest bit of a uint64 in from the left: after one step it is cleared, and stays so.
    const Var one = i.b.like(x, 1), highest = i.b.emit("shift_left", {one, i.b.like(x, 63)});
    const Var half = i.b.emit("bit_and", {i.b.emit("shift_right", {x, one}), i.b.emit("bit_not", {highest})});
    i.set(0, i.b.select(i.b.equal(bits, i.b.like(bits, 0)), x, i.b.emit("shift_right", {half, bits - one})));
  }};
}

EPL_ONNX_OP(IsInf) {
  return {.run = [](Import& i) {
    i.set(0, i.b.emit("is_inf", {i.in(0)},
                      {{"positive", i.integer("detect_positive", 1) != 0},
                       {"negative", i.integer("detect_negative", 1) != 0}}));
  }};
}

EPL_ONNX_OP(Where) {
  return {.run = [](Import& i) { i.set(0, i.b.select(i.in(0), i.in(1), i.in(2))); }};
}

EPL_ONNX_OP(Clip) {
  return {.run = [](Import& i) {
    auto bound = [&](std::string_view name) {
      return i.has_attribute(name) ? i.b.like(i.in(0), i.number(name, 0)) : Var();
    };
    i.set(0, i.b.emit("clip", {i.in(0), bound("min"), bound("max")}));
  }};
}
EPL_ONNX_OP(Clip, 11) {
  return {.run = [](Import& i) {
    i.set(0, i.b.emit("clip", {i.in(0), i.has(1) ? i.in(1) : Var(), i.has(2) ? i.in(2) : Var()}));
  }};
}

EPL_ONNX_OP(Cast) {
  return {.run = [](Import& i) {
    auto type = dtype_of(static_cast<int32_t>(i.integer("to", 0)));
    if (!type.ok()) return i.fail(type.status());
    i.set(0, i.b.emit("cast", {i.in(0)}, {{"to", *type}}));
  }};
}

EPL_ONNX_OP(CastLike) {
  return {.run = [](Import& i) { i.set(0, i.b.emit("cast", {i.in(0)}, {{"to", i.type(1).dtype}})); }};
}

EPL_ONNX_OP(LeakyRelu) {
  return {.run = [](Import& i) { i.set(0, i.b.emit("leaky_relu", {i.in(0)}, {{"alpha", i.number("alpha", 0.01)}})); }};
}
EPL_ONNX_OP(Elu) {
  return {.run = [](Import& i) { i.set(0, i.b.emit("elu", {i.in(0)}, {{"alpha", i.number("alpha", 1.0)}})); }};
}
EPL_ONNX_OP(Celu) {
  return {.run = [](Import& i) { i.set(0, i.b.emit("celu", {i.in(0)}, {{"alpha", i.number("alpha", 1.0)}})); }};
}
EPL_ONNX_OP(Selu) {
  return {.run = [](Import& i) {
    i.set(0, i.b.emit(
                 "selu", {i.in(0)},
                 {{"alpha", i.number("alpha", 1.6732631921768188)}, {"gamma", i.number("gamma", 1.0507010221481323)}}));
  }};
}
EPL_ONNX_OP(HardSigmoid) {
  return {.run = [](Import& i) {
    i.set(0, i.b.emit("hard_sigmoid", {i.in(0)}, {{"alpha", i.number("alpha", 0.2)}, {"beta", i.number("beta", 0.5)}}));
  }};
}
EPL_ONNX_OP(ThresholdedRelu) {
  return {
      .run = [](Import& i) { i.set(0, i.b.emit("thresholded_relu", {i.in(0)}, {{"alpha", i.number("alpha", 1.0)}})); }};
}
EPL_ONNX_OP(Gelu) {
  return {.run = [](Import& i) {
    i.set(0, i.b.emit("gelu", {i.in(0)}, {{"approximate", i.choice("approximate", {"none", "tanh"})}}));
  }};
}
EPL_ONNX_OP(Swish) {
  return {.run = [](Import& i) {
    double alpha = i.number("alpha", 1.0);
    i.set(0, alpha == 1.0 ? i.b.unary("silu", i.in(0)) : i.in(0) * i.b.sigmoid(i.in(0) * alpha));
  }};
}

// Towards zero by `bias`, and zero within `lambd` of it: real numbers, which x need not hold.
EPL_ONNX_OP(Shrink) {
  return {.run = [](Import& i) {
    const DType as = i.in(0).dtype();
    Var x = is_float(as) ? i.in(0) : i.b.cast(i.in(0), real_type(as, DType::f32));
    const double bias = i.number("bias", 0), lambd = i.number("lambd", 0.5);
    i.set(0, i.b.cast(i.b.select(x > lambd, x - bias, i.b.select(x < -lambd, x + bias, i.b.like(x, 0))), as));
  }};
}

namespace {

// A mask is drawn only in training, with a ratio known at import.
void dropout(Import& i, double ratio, bool drops, DType mask) {
  Var x = i.in(0);
  if (!i.training() || !drops || !(ratio > 0)) {
    i.set(0, i.b.unary("identity", x));
    if (i.wants(1)) i.set(1, i.b.broadcast_to(i.b.scalar(mask, 1), x.shape()));
    return;
  }
  if (!(ratio < 1)) return i.fail(cat("a ratio of ", ratio, "; it lies between 0 and 1"));
  auto results = i.b.emit_all("dropout", {x}, {{"ratio", ratio}});
  i.set(0, results[0]);
  if (i.wants(1)) i.set(1, i.b.cast(results[1], mask));
}

}  // namespace

// These opsets do not say whether a node drops; writers name the mask where it does.
EPL_ONNX_OP(Dropout) {
  return {.run = [](Import& i) { dropout(i, i.number("ratio", 0.5), i.wants(1), i.type(0).dtype); }};
}
EPL_ONNX_OP(Dropout, 10) {
  return {.run = [](Import& i) { dropout(i, i.number("ratio", 0.5), i.wants(1), DType::boolean); }};
}
EPL_ONNX_OP(Dropout, 12) {
  return {.run = [](Import& i) {
    double ratio = 0.5;
    if (const epl::Tensor* given = i.constant(1); given && given->elements() == 1) ratio = given->get(0);
    if (i.training() && ((i.has(1) && !i.constant(1)) || (i.has(2) && !i.constant(2))))
      return i.fail("whether it drops, and how much, must be known when the model is bound");
    const bool drops = i.constant(2) && i.constant(2)->elements() == 1 && i.constant(2)->get_int(0) != 0;
    dropout(i, ratio, drops, DType::boolean);
  }};
}

EPL_ONNX_OP(SwiGLU) {
  return {.run = [](Import& i) {
    Var gate = i.in(0);
    double alpha = i.number("alpha", 1.0);
    i.set(0, (alpha == 1.0 ? i.b.unary("silu", gate) : gate * i.b.sigmoid(gate * alpha)) * i.in(1));
  }};
}

}  // namespace epl::onnx
