// Quantised activations, computed as the file says. In training the rounding lets the gradient through as if it were
// not there, and stops it where a number is beyond the range (the straight-through estimate of quantisation-aware
// training).
#include <algorithm>
#include <cmath>

#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {
namespace {

// A scale or zero point as it stands beside x: for all of the tensor, or for each position along `axis`.
Var beside(Import& i, int input, const Var& x) {
  const Var v = i.in(input);
  const int64_t count = v.type().elements();
  if (count == 1 && v.ndim() <= 1) return i.b.reshape(v, {});
  const int64_t axis = i.axis("axis", 1, x.ndim());
  if (v.ndim() != 1 || v.dim(0) != x.dim(static_cast<int>(axis))) {
    i.fail(cat("input ", input, " is ", v.type().text(), "; one number, or one for each of dimension ", axis, " of ",
               x.type().text(), ", is expected"));
    return {};
  }
  Shape shape(static_cast<size_t>(x.ndim()), 1);
  shape[static_cast<size_t>(axis)] = count;
  return i.b.reshape(v, shape);
}

bool plain(Import& i) {
  if (i.integer("block_size", 0) != 0)
    i.fail(unsupported("scales for blocks (block_size ", i.integer("block_size", 0), ")"));
  if (i.type(1).elements() == 0) i.fail("no scale");
  return i.b.status().ok();
}

}  // namespace

// Beside the integers, for whoever takes them back, the same numbers as real ones that a gradient comes through.
EPL_ONNX_OP(QuantizeLinear) {
  return {.quantizes = Quantizes::gives, .run = [](Import& i) {
            if (!plain(i)) return;
            Builder& b = i.b;
            const DType as = i.has(2) ? i.type(2).dtype : DType::u8;
            if (!is_integer(as) || dtype_bytes(as) > 2 || i.integer("output_dtype", 0) != 0)
              return i.fail(unsupported("quantising to other integers than the 8 or 16 bits of a zero point"));
            Var x = i.in(0);
            if (!is_float(x.dtype())) x = b.cast(x, DType::f32);
            const double span = std::ldexp(1.0, static_cast<int>(dtype_bytes(as)) * 8),
                         low = as == DType::i8 || as == DType::i16 ? -span / 2 : 0, high = low + span - 1;
            const Var scaled = x / b.cast(beside(i, 1, x), x.dtype());
            auto shifted = [&](const Var& v) { return i.has(2) ? v + b.cast(beside(i, 2, x), x.dtype()) : v; };
            auto clipped = [&](const Var& v) { return b.emit("clip", {v, b.like(v, low), b.like(v, high)}); };
            const Var rounded = clipped(shifted(b.unary("round", scaled)));
            i.set(0, b.cast(rounded, as));
            auto fixed = [&](const Var& v) { return b.emit("stop_gradient", {v}); };
            const Var exact = clipped(shifted(scaled));
            i.set_through_rounding(i.training() ? fixed(rounded) + (exact - fixed(exact)) : rounded);
          }};
}

EPL_ONNX_OP(DequantizeLinear) {
  return {.quantizes = Quantizes::takes, .run = [](Import& i) {
            if (!plain(i)) return;
            Builder& b = i.b;
            const DType as = i.type(1).dtype;
            if (!is_float(as) || i.integer("output_dtype", 0) != 0)
              return i.fail(unsupported("a result of another type than the scale has"));
            Var x = i.through_rounding();
            if (!x) {
              x = i.in(0);
              if (i.has(2)) x = b.cast(x, DType::i32) - b.cast(beside(i, 2, x), DType::i32);
              return i.set(0, b.cast(x, as) * beside(i, 1, x));
            }
            x = b.cast(x, as);
            if (i.has(2)) x = x - b.cast(beside(i, 2, x), as);
            i.set(0, x * beside(i, 1, x));
          }};
}

}  // namespace epl::onnx
