// Normalisations written out in sums, and pooling by norms.
#include <algorithm>
#include <cmath>

#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {
namespace {

// (x - mean) / sqrt(variance + epsilon) over some axes.
Var standardized(Builder& b, const Var& x, const Ints& axes, double epsilon) {
  Var centred = x - b.mean(x, axes, true);
  return centred * b.reciprocal(b.sqrt(b.mean(centred * centred, axes, true) + epsilon));
}

// A vector of channels [c] beside x[n, c, ...].
Var per_channel(Builder& b, const Var& v, int ndim) {
  Shape shape(ndim, 1);
  shape[1] = v.type().elements();
  return b.reshape(v, shape);
}

Ints spatial_axes(int ndim) {
  Ints axes;
  for (int d = 2; d < ndim; ++d) axes.push_back(d);
  return axes;
}

}  // namespace

EPL_ONNX_OP(InstanceNormalization) {
  return {.run = [](Import& i) {
    Var x = i.in(0);
    if (x.ndim() < 3) return i.fail(cat(x.type().text(), " has no space to normalise over"));
    Var y = standardized(i.b, x, spatial_axes(x.ndim()), i.number("epsilon", 1e-5));
    i.set(0, y * per_channel(i.b, i.in(1), x.ndim()) + per_channel(i.b, i.in(2), x.ndim()));
  }};
}

// Scale and bias are per group before opset 21, per channel since.
EPL_ONNX_OP(GroupNormalization) {
  return {.run = [](Import& i) {
    Builder& b = i.b;
    Var x = i.in(0), scale = i.in(1), bias = i.in(2);
    int64_t groups = i.integer("num_groups", 0);
    if (x.ndim() < 2 || groups < 1 || x.dim(0) < 1 || x.dim(1) % groups != 0)
      return i.fail(cat(groups, " groups do not fit ", x.type().text()));
    Var y = standardized(b, b.reshape(x, {x.dim(0), groups, x.type().elements() / (x.dim(0) * groups)}), {2},
                         i.number("epsilon", 1e-5));
    if (scale.type().elements() == groups && groups != x.dim(1)) {
      y = y * b.reshape(scale, {1, groups, 1}) + b.reshape(bias, {1, groups, 1});
      return i.set(0, b.reshape(y, x.shape()));
    }
    i.set(0, b.reshape(y, x.shape()) * per_channel(b, scale, x.ndim()) + per_channel(b, bias, x.ndim()));
  }};
}

EPL_ONNX_OP(MeanVarianceNormalization) {
  return {.run = [](Import& i) {
    Builder& b = i.b;
    Var x = i.in(0);
    Ints axes = i.axes(i.ints("axes", {0, 2, 3}), x.ndim());
    Var centred = x - b.mean(x, axes, true);
    i.set(0, centred / (b.sqrt(b.mean(centred * centred, axes, true)) + 1e-9));
  }};
}

// Where the norm is zero the result is zero as well.
EPL_ONNX_OP(LpNormalization) {
  return {.run = [](Import& i) {
    Builder& b = i.b;
    Var x = i.in(0);
    Ints axis = {i.axis("axis", -1, x.ndim())};
    Var norm = i.integer("p", 2) == 1 ? b.sum(b.unary("abs", x), axis, true) : b.sqrt(b.sum(x * x, axis, true));
    i.set(0, x / b.select(b.equal(norm, b.like(norm, 0)), b.like(norm, 1), norm));
  }};
}

// x / (bias + alpha / size * sum of squares over neighbouring channels) ^ beta.
EPL_ONNX_OP(LRN) {
  return {.run = [](Import& i) {
    Builder& b = i.b;
    Var x = i.in(0);
    int64_t size = i.integer("size", 1), before = (size - 1) / 2, after = size - 1 - before;
    if (x.ndim() < 2 || size < 1 || size > 1024) return i.fail(cat("a window of ", size, " channels"));
    Ints begin(x.ndim(), 0), end(x.ndim(), 0);
    begin[1] = before;
    end[1] = after;
    Var squares = b.emit("pad", {x * x}, {{"mode", std::string("constant")}, {"begin", begin}, {"end", end}}), total;
    for (int64_t k = 0; k < size; ++k) {
      Var one = b.slice(squares, {1}, {k}, {k + x.dim(1)});
      total = total ? total + one : one;
    }
    Var base = total * (i.number("alpha", 1e-4) / static_cast<double>(size)) + i.number("bias", 1.0);
    i.set(0, x / b.pow(base, b.like(base, i.number("beta", 0.75))));
  }};
}

// Of the domain of classical learning: columns moved and scaled, each by its own number or all by one.
EPL_ONNX_OP(Scaler) {
  return {.domain = "ai.onnx.ml", .run = [](Import& i) {
            Builder& b = i.b;
            Var x = b.cast(i.in(0), DType::f32);
            auto numbers = [&](std::string_view name, double fallback) {
              Doubles given = i.numbers(name, {fallback});
              if (given.size() != 1 && static_cast<int64_t>(given.size()) != x.dim(-1))
                i.fail(cat(given.size(), " numbers in ", name, " for ", x.type().text()));
              epl::Tensor made(TensorType{DType::f32, {static_cast<int64_t>(given.size())}});
              for (size_t k = 0; k < given.size(); ++k) made.set(static_cast<int64_t>(k), given[k]);
              return b.constant(made);
            };
            i.set(0, (x - numbers("offset", 0)) * numbers("scale", 1));
          }};
}

EPL_ONNX_OP(GlobalLpPool) {
  return {.run = [](Import& i) {
    Builder& b = i.b;
    Var x = b.unary("abs", i.in(0));
    double p = static_cast<double>(i.integer("p", 2));
    i.set(0, b.pow(b.sum(b.pow(x, b.like(x, p)), spatial_axes(x.ndim()), true), b.like(x, 1 / p)));
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
