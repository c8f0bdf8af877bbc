// Fourier transforms of a length that is known when the model is bound: a product with a matrix of cosines and one of
// sines.
#include <algorithm>
#include <cmath>

#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {
namespace {

constexpr int64_t max_entries = int64_t{1} << 24;  // of a matrix
constexpr double pi = 3.14159265358979323846;

struct Transform {
  int64_t length = 0, bins = 0;
};

bool sized(Import& i, int64_t length, int64_t bins) {
  if (length < 1 || bins < 1 || length > max_entries / bins) {
    i.fail(unsupported("a Fourier transform of length ", length,
                       " is too large: it is computed as a product with a matrix of ", max_entries,
                       " numbers at most"));
    return false;
  }
  i.hold(2 * length * bins * static_cast<int64_t>(sizeof(double)));
  return i.b.status().ok();
}

// [length, bins]: the cosine, or the sine, of each frequency at each position.
Var waves(Import& i, DType dtype, const Transform& t, double (*wave)(double)) {
  epl::Tensor out({dtype, {t.length, t.bins}});
  for (int64_t n = 0; n < t.length; ++n) {
    for (int64_t k = 0; k < t.bins; ++k)
      out.set(n * t.bins + k, wave(2 * pi * static_cast<double>(n * k % t.length) / static_cast<double>(t.length)));
  }
  return i.b.constant(out);
}

// Real and imaginary parts along the last dimension of x (`imaginary` may be empty), with both parts as a last
// dimension of the result.
Var transform(Import& i, const Var& real, const Var& imaginary, const Transform& t) {
  Builder& b = i.b;
  const Var cosine = waves(i, real.dtype(), t, std::cos), sine = waves(i, real.dtype(), t, std::sin);
  Var y = b.matmul(real, cosine), z = b.matmul(real, sine) * -1.0;
  if (imaginary) {
    y = y + b.matmul(imaginary, sine);
    z = z + b.matmul(imaginary, cosine);
  }
  Shape each = y.shape();
  each.push_back(1);
  return b.concat({b.reshape(y, each), b.reshape(z, each)}, static_cast<int64_t>(each.size()) - 1);
}

// Part 0 or 1 of what has both, or only the first, as its last dimension.
Var part(Import& i, const Var& x, int64_t which) {
  const int last = x.ndim() - 1;
  if (which >= x.dim(last)) return {};
  Shape shape = x.shape();
  shape.pop_back();
  return i.b.reshape(i.b.slice(x, {last}, {which}, {which + 1}), shape);
}

int64_t number(Import& i, int input, int64_t fallback) {
  if (!i.has(input)) return fallback;
  const Ints given = i.ints(input);
  if (given.size() == 1) return given[0];
  if (i.b.status().ok()) i.fail(cat("input ", input, " must be one number"));
  return fallback;
}

// The first `length` numbers along the last dimension, with zeros after those that are there.
Var cut_or_fill(Import& i, const Var& x, int64_t length) {
  const int last = x.ndim() - 1;
  if (!x || x.dim(last) == length) return x;
  if (x.dim(last) > length) return i.b.slice(x, {last}, {0}, {length});
  Shape more = x.shape();
  more.back() = length - x.dim(last);
  return i.b.concat({x, i.b.broadcast_to(i.b.like(x, 0), more)}, last);
}

void dft(Import& i, int64_t given_axis) {
  Builder& b = i.b;
  const Var x = i.in(0);
  const int parts = x.ndim() - 1;
  if (parts < 1 || !is_float(x.dtype()) || x.dim(parts) < 1 || x.dim(parts) > 2)
    return i.fail("the last dimension of what is transformed holds a real part, or a real and an imaginary one");
  const int64_t axis = i.axis(given_axis, x.ndim());
  if (axis == parts) return i.fail("the parts cannot be what is transformed");
  Transform t{.length = number(i, 1, x.dim(static_cast<int>(axis)))};
  if (i.integer("inverse", 0) != 0)
    return i.fail(
        unsupported("the transform from a spectrum back to a signal (inverse) is not supported; train what comes "
                    "before it (loss.output)"));
  t.bins = i.integer("onesided", 0) != 0 ? t.length / 2 + 1 : t.length;
  if (!sized(i, t.length, t.bins)) return;
  Ints last, back;  // the axis to the end, and, before the parts, to where it was
  for (int64_t d = 0; d < parts; ++d) {
    if (d != axis) last.push_back(d);
  }
  last.push_back(axis);
  for (int64_t d = 0; d < parts; ++d) back.push_back(std::ranges::find(last, d) - last.begin());
  back.push_back(parts);
  auto moved = [&](int64_t which) {
    const Var v = part(i, x, which);
    return v ? cut_or_fill(i, b.transpose(v, last), t.length) : v;
  };
  i.set(0, b.transpose(transform(i, moved(0), moved(1), t), back));
}

}  // namespace

EPL_ONNX_OP(DFT) {
  return {.run = [](Import& i) { dft(i, i.integer("axis", 1)); }};
}
EPL_ONNX_OP(DFT, 20) {
  return {.run = [](Import& i) { dft(i, number(i, 2, -2)); }};
}

// Frames of the signal, each under the window.
EPL_ONNX_OP(STFT) {
  return {.run = [](Import& i) {
    Builder& b = i.b;
    Var x = i.in(0);
    if (x.ndim() == 2) x = b.reshape(x, {x.dim(0), x.dim(1), 1});
    if (x.ndim() != 3 || !is_float(x.dtype()) || x.dim(2) < 1 || x.dim(2) > 2)
      return i.fail("a signal has the dimensions batch, length, and real and imaginary part");
    const int64_t step = number(i, 1, 1), length = i.has(3) ? number(i, 3, 0) : i.has(2) ? i.type(2).elements() : 0;
    const Transform t{.length = length, .bins = i.integer("onesided", 1) != 0 ? length / 2 + 1 : length};
    if (step < 1 || length < 1 || length > x.dim(1))
      return i.fail(cat("frames of ", length, " numbers every ", step, " of a signal of ", x.dim(1)));
    const int64_t frames = (x.dim(1) - length) / step + 1;
    if (!sized(i, length, t.bins) || !sized(i, frames, length)) return;
    epl::Tensor at(TensorType{DType::i64, {frames, length}});
    for (int64_t f = 0; f < frames; ++f) {
      for (int64_t n = 0; n < length; ++n) at.set_int(f * length + n, f * step + n);
    }
    const Var places = b.constant(at);
    if (i.has(2) && i.type(2).elements() != length)
      return i.fail(cat("a window of ", i.type(2).elements(), " for frames of ", length));
    auto framed = [&](int64_t which) {
      Var v = part(i, x, which);
      if (!v) return v;
      v = b.emit("gather", {v, places}, {{"axis", int64_t{1}}});
      return i.has(2) ? v * b.cast(i.in(2), v.dtype()) : v;
    };
    i.set(0, transform(i, framed(0), framed(1), t));
  }};
}

}  // namespace epl::onnx
