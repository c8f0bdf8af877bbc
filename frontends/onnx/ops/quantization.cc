// Quantised activations, computed as the file says. In training the rounding lets the gradient through as if it were
// not there, and stops it where a number is beyond the range (the straight-through estimate of quantisation-aware
// training).
#include <algorithm>
#include <cmath>

#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"
#include "frontends/onnx/ops/types.h"

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
    i.fail(unsupported("it has a scale for each block (block_size ", i.integer("block_size", 0),
                       "), which is not supported; quantise by tensor or by channel, or train the model from before"));
  if (i.type(1).elements() == 0) i.fail("no scale");
  return i.b.status().ok();
}

}  // namespace

// Beside the integers, for whoever takes them back, the same numbers as real ones that a gradient comes through.
EPL_ONNX_OP(QuantizeLinear) {
  return {.structural = {1, 2}, .quantizes = Quantizes::gives, .run = [](Import& i) {
            if (!plain(i)) return;
            Builder& b = i.b;
            const DType as = i.has(2) ? i.type(2).dtype : DType::u8;
            if (!is_integer(as) || dtype_bytes(as) > 2 || i.integer("output_dtype", 0) != 0)
              return i.fail(unsupported(
                  "it rounds to other integers than those of 8 or 16 bits that a zero point has; train the model "
                  "from before it was quantised"));
            // A zero point of 16 bits lies beyond the numbers of an f16.
            const Var x = b.cast(
                i.in(0),
                at_least_f32(real_type(is_float(i.type(0).dtype) ? i.type(0).dtype : DType::f32, i.type(1).dtype)));
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
  return {.structural = {1, 2}, .quantizes = Quantizes::takes, .run = [](Import& i) {
            if (!plain(i)) return;
            Builder& b = i.b;
            const DType as = i.type(1).dtype;
            if (!is_float(as) || i.integer("output_dtype", 0) != 0)
              return i.fail(
                  unsupported("its result has another type than its scale, which is not supported; make them alike"));
            Var x = i.through_rounding();
            if (!x) {
              x = i.in(0);
              if (i.has(2)) x = b.cast(x, DType::i32) - b.cast(beside(i, 2, x), DType::i32);
            } else if (i.has(2)) {
              x = x - b.cast(beside(i, 2, x), x.dtype());
            }
            // What a scale of 16 bits multiplies may itself need more.
            const DType type = at_least_f32(as);
            i.set(0, b.cast(b.cast(x, type) * b.cast(beside(i, 1, x), type), as));
          }};
}

}  // namespace epl::onnx
