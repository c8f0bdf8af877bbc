// Products, convolutions, normalisations, reductions and pooling: what the layers of networks are made of.
#include <algorithm>

#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {
namespace {

// Axes of a reduction: from input 1 (newer opsets) or the attribute; none means all, or x itself.
struct Reduction {
  Ints axes;
  bool keep = true;
  bool nothing = false;
};
Reduction reduction(Import& i) {
  Reduction r;
  int ndim = i.type(0).ndim();
  r.axes = i.axes(i.list(1, "axes"), ndim);
  r.keep = i.integer("keepdims", 1) != 0;
  std::ranges::sort(r.axes);
  if (r.axes.empty()) {
    if (i.integer("noop_with_empty_axes", 0)) {
      r.nothing = true;
    } else {
      for (int d = 0; d < ndim; ++d) r.axes.push_back(d);
    }
  }
  return r;
}

double count_along(const Var& x, const Ints& axes) {
  double count = 1;
  for (int64_t axis : axes) count *= static_cast<double>(x.dim(static_cast<int>(axis)));
  return count;
}

// f(x, axes, keep) where there is something to reduce.
template <class F> void reduce(Import& i, F&& f) {
  Var x = i.in(0);
  Reduction r = reduction(i);
  i.set(0, r.nothing || r.axes.empty() ? i.b.unary("identity", x) : f(x, r.axes, r.keep));
}

Var reduce_op(Builder& b, const char* op, const Var& x, const Ints& axes, bool keep) {
  return b.emit(op, {x}, {{"axes", axes}, {"keep", keep}});
}

// Truth values are ordered as 0 and 1.
Var extreme(Builder& b, const char* op, const Var& x, const Ints& axes, bool keep) {
  if (x.dtype() != DType::boolean) return reduce_op(b, op, x, axes, keep);
  return b.cast(reduce_op(b, op, b.cast(x, DType::u8), axes, keep), DType::boolean);
}

// Arithmetic on what a file says of a window stays far from overflow; no tensor comes near the bound.
bool bounded(Import& i, std::initializer_list<const Ints*> lists, int64_t least) {
  for (const Ints* list : lists) {
    for (int64_t n : *list) {
      if (n >= least && n <= int64_t{1} << 31) continue;
      i.fail(cat(n, " is not a size, stride, dilation or pad of a window"));
      return false;
    }
  }
  return true;
}

std::string auto_pad(Import& i) {
  if (i.text("auto_pad", "").empty()) return "NOTSET";
  return i.choice("auto_pad", {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"});
}

// Pads of a window as begin..., end...; auto_pad is worked out from the sizes.
Ints window_pads(Import& i, const Shape& x, const Ints& kernel, const Ints& strides, const Ints& dilations) {
  size_t spatial = kernel.size();
  if (!bounded(i, {&kernel, &strides, &dilations}, 1)) return Ints(2 * spatial, 0);
  std::string automatic = auto_pad(i);
  if (automatic == "NOTSET") return i.ints("pads", Ints(2 * spatial, 0));
  Ints pads(2 * spatial, 0);
  if (automatic == "VALID") return pads;
  for (size_t d = 0; d < spatial; ++d) {
    int64_t size = x[d + 2], out = (size + strides[d] - 1) / strides[d];
    int64_t total = std::max<int64_t>(0, (out - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 - size);
    int64_t small = total / 2;
    pads[d] = automatic == "SAME_UPPER" ? small : total - small;
    pads[d + spatial] = total - pads[d];
  }
  return pads;
}

}  // namespace

EPL_ONNX_OP(MatMul) {
  return {.run = [](Import& i) {
    Var a = i.in(0), b = i.in(1);
    // A vector is a row on the left and a column on the right.
    bool row = a.ndim() == 1, column = b.ndim() == 1;
    if (row) a = i.b.reshape(a, {1, a.dim(0)});
    if (column) b = i.b.reshape(b, {b.dim(0), 1});
    Var y = i.b.matmul(a, b);
    Shape shape = y.shape();
    if (column && !shape.empty()) shape.pop_back();
    if (row && !shape.empty()) shape.erase(shape.end() - (column ? 1 : 2));
    i.set(0, row || column ? i.b.reshape(y, shape) : y);
  }};
}

EPL_ONNX_OP(Gemm) {
  return {.run = [](Import& i) {
    double alpha = i.number("alpha", 1.0), beta = i.number("beta", 1.0);
    Var y = i.b.matmul(i.in(0), i.in(1), i.integer("transA", 0) != 0, i.integer("transB", 0) != 0);
    if (alpha != 1.0) y = y * alpha;
    if (i.has(2) && beta != 0.0) y = y + (beta == 1.0 ? i.in(2) : i.in(2) * beta);
    i.set(0, y);
  }};
}

EPL_ONNX_OP(Conv) {
  return {.run = [](Import& i) {
    Var x = i.in(0), w = i.in(1);
    size_t spatial = static_cast<size_t>(std::max(x.ndim() - 2, 0));
    Ints kernel(w.shape().begin() + std::min<size_t>(2, w.shape().size()), w.shape().end());
    Ints strides = i.ints("strides", Ints(spatial, 1)), dilations = i.ints("dilations", Ints(spatial, 1));
    if (kernel.size() != spatial || strides.size() != spatial || dilations.size() != spatial)
      return i.fail("kernel, strides and input do not fit");
    std::vector<Var> operands = {x, w};
    if (i.has(2)) operands.push_back(i.in(2));
    i.set(0, i.b.emit("conv", operands,
                      {{"strides", strides},
                       {"pads", window_pads(i, x.shape(), kernel, strides, dilations)},
                       {"dilations", dilations},
                       {"groups", i.integer("group", 1)}}));
  }};
}

namespace {

// In training the statistics are those of the batch, and the running ones move towards them: by PyTorch's convention,
// which takes the unbiased variance. Written out in sums, so that every cut of the batch follows from theirs.
void batch_norm(Import& i, bool trains) {
  Var x = i.in(0), scale = i.in(1), bias = i.in(2);
  Builder& b = i.b;
  double epsilon = i.number("epsilon", 1e-5), momentum = i.number("momentum", 0.9);
  Shape channel(std::max(x.ndim(), 2), 1);
  channel[1] = x.dim(1);
  auto wide = [&](const Var& v) { return b.reshape(v, channel); };
  if (!i.training() || !trains) {
    Var rstd = b.reciprocal(b.sqrt(i.in(4) + epsilon));
    i.set(0, (x - wide(i.in(3))) * wide(rstd * scale) + wide(bias));
    for (int k = 1; k <= 2; ++k) {  // a file for training also names the running statistics, which stay
      if (i.wants(k)) i.set(k, b.unary("identity", i.in(k + 2)));
    }
    return;
  }
  Ints axes;
  double count = 1;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d == 1) continue;
    axes.push_back(d);
    count *= static_cast<double>(x.dim(d));
  }
  Var mean = b.mean(x, axes, true);
  Var centred = x - mean;
  Var variance = b.mean(centred * centred, axes, true);
  Var rstd = b.reciprocal(b.sqrt(variance + epsilon));
  i.set(0, centred * (rstd * wide(scale)) + wide(bias));
  Var flat_mean = b.emit("stop_gradient", {b.reshape(mean, {x.dim(1)})});
  Var flat_variance = b.emit("stop_gradient", {b.reshape(variance, {x.dim(1)})}) * (count / std::max(count - 1, 1.0));
  const Var old_mean = i.statistic(3), old_variance = i.statistic(4);
  Var next_mean = old_mean * momentum + flat_mean * (1.0 - momentum);
  Var next_variance = old_variance * momentum + flat_variance * (1.0 - momentum);
  i.update_statistic(3, next_mean);
  i.update_statistic(4, next_variance);
  if (i.wants(1)) i.set(1, next_mean);
  // The output is the standard's, which takes the variance of the batch as it is.
  if (i.wants(2)) i.set(2, old_variance * momentum + b.reshape(variance, {x.dim(1)}) * (1.0 - momentum));
}

}  // namespace

// The outputs 3 and 4 of the older rows are whatever the writer's runtime kept for its backward pass: nobody may use
// them.
EPL_ONNX_OP(BatchNormalization) {
  return {.statistics = {3, 4}, .run = [](Import& i) {
            if (i.integer("spatial", 1) == 0) return i.fail(unsupported("statistics for each element (spatial 0)"));
            batch_norm(i, learns_statistics(i.node(), i.opset()));
          }};
}
EPL_ONNX_OP(BatchNormalization, 9) {
  return {.statistics = {3, 4}, .run = [](Import& i) { batch_norm(i, learns_statistics(i.node(), i.opset())); }};
}
EPL_ONNX_OP(LayerNormalization) {
  return {.run = [](Import& i) {
    std::vector<Var> operands = {i.in(0), i.has(1) ? i.in(1) : Var(), i.has(2) ? i.in(2) : Var()};
    auto results =
        i.b.emit_all("layer_norm", operands,
                     {{"axis", i.axis("axis", -1, i.type(0).ndim())}, {"epsilon", i.number("epsilon", 1e-5)}});
    for (int k = 0; k < i.outputs() && k < 3; ++k) {
      if (i.wants(k)) i.set(k, results[k]);
    }
  }};
}

EPL_ONNX_OP(RMSNormalization) {
  return {.run = [](Import& i) {
    auto results =
        i.b.emit_all("rms_norm", {i.in(0), i.has(1) ? i.in(1) : Var()},
                     {{"axis", i.axis("axis", -1, i.type(0).ndim())}, {"epsilon", i.number("epsilon", 1e-5)}});
    i.set(0, results[0]);
  }};
}

EPL_ONNX_OP(ReduceSum) {
  return {.run = [](Import& i) {
    reduce(i, [&](const Var& x, const Ints& axes, bool keep) { return i.b.sum(x, axes, keep); });
  }};
}
// The mean of integers is their sum divided as integers.
EPL_ONNX_OP(ReduceMean) {
  return {.run = [](Import& i) {
    reduce(i, [&](const Var& x, const Ints& axes, bool keep) {
      return is_float(x.dtype()) ? i.b.mean(x, axes, keep) : i.b.sum(x, axes, keep) / count_along(x, axes);
    });
  }};
}
EPL_ONNX_OP(ReduceMax) {
  return {.run = [](Import& i) {
    reduce(i, [&](const Var& x, const Ints& axes, bool keep) { return extreme(i.b, "max_reduce", x, axes, keep); });
  }};
}
EPL_ONNX_OP(ReduceMin) {
  return {.run = [](Import& i) {
    reduce(i, [&](const Var& x, const Ints& axes, bool keep) { return extreme(i.b, "min_reduce", x, axes, keep); });
  }};
}
EPL_ONNX_OP(ReduceProd) {
  return {.run = [](Import& i) {
    reduce(i, [&](const Var& x, const Ints& axes, bool keep) { return reduce_op(i.b, "prod_reduce", x, axes, keep); });
  }};
}
EPL_ONNX_OP(ReduceL1) {
  return {.run = [](Import& i) {
    reduce(i, [&](const Var& x, const Ints& axes, bool keep) { return i.b.sum(i.b.unary("abs", x), axes, keep); });
  }};
}
EPL_ONNX_OP(ReduceL2) {
  return {.run = [](Import& i) {
    reduce(i, [&](const Var& x, const Ints& axes, bool keep) { return i.b.sqrt(i.b.sum(x * x, axes, keep)); });
  }};
}
EPL_ONNX_OP(ReduceSumSquare) {
  return {.run = [](Import& i) {
    reduce(i, [&](const Var& x, const Ints& axes, bool keep) { return i.b.sum(x * x, axes, keep); });
  }};
}
EPL_ONNX_OP(ReduceLogSum) {
  return {.run = [](Import& i) {
    reduce(i, [&](const Var& x, const Ints& axes, bool keep) { return i.b.log(i.b.sum(x, axes, keep)); });
  }};
}
// Shifted by the maximum, so that no exponential overflows.
EPL_ONNX_OP(ReduceLogSumExp) {
  return {.run = [](Import& i) {
    reduce(i, [&](const Var& x, const Ints& axes, bool keep) {
      Var top = i.b.emit("stop_gradient", {i.b.max_along(x, axes, true)});
      Var y = i.b.log(i.b.sum(i.b.exp(x - top), axes, true)) + top;
      Shape shape;
      for (int d = 0; d < x.ndim(); ++d) {
        bool reduced = std::ranges::find(axes, d) != axes.end();
        if (!reduced || keep) shape.push_back(reduced ? 1 : x.dim(d));
      }
      return i.b.reshape(y, shape);
    });
  }};
}

EPL_ONNX_OP(GlobalAveragePool) {
  return {.run = [](Import& i) {
    Ints axes;
    for (int d = 2; d < i.type(0).ndim(); ++d) axes.push_back(d);
    i.set(0, i.b.mean(i.in(0), axes, true));
  }};
}
EPL_ONNX_OP(GlobalMaxPool) {
  return {.run = [](Import& i) {
    Ints axes;
    for (int d = 2; d < i.type(0).ndim(); ++d) axes.push_back(d);
    i.set(0, i.b.max_along(i.in(0), axes, true));
  }};
}

namespace {

Attributes pool_attributes(Import& i) {
  Ints kernel = i.ints("kernel_shape", {});
  Ints strides = i.ints("strides", Ints(kernel.size(), 1)), dilations = i.ints("dilations", Ints(kernel.size(), 1));
  if (static_cast<int>(kernel.size()) + 2 != i.type(0).ndim() || strides.size() != kernel.size() ||
      dilations.size() != kernel.size()) {
    i.fail("kernel, strides and input do not fit");
    return {};
  }
  return {{"kernel", kernel},
          {"strides", strides},
          {"pads", window_pads(i, i.type(0).shape, kernel, strides, dilations)},
          {"dilations", dilations},
          {"ceil", i.integer("ceil_mode", 0) != 0}};
}

}  // namespace

EPL_ONNX_OP(MaxPool) {
  return {.run = [](Import& i) {
    auto results = i.b.emit_all("max_pool", {i.in(0)}, pool_attributes(i));
    i.set(0, results[0]);
    if (!i.wants(1)) return;
    if (i.integer("storage_order", 0) != 0)
      return i.fail(unsupported("positions counted by columns (storage_order 1)"));
    i.set(1, i.b.cast(results[1], DType::i64));
  }};
}
EPL_ONNX_OP(AveragePool) {
  return {.run = [](Import& i) {
    Attributes attributes = pool_attributes(i);
    attributes.set("count_include_pad", i.integer("count_include_pad", 0) != 0);
    i.set(0, i.b.emit("avg_pool", {i.in(0)}, attributes));
  }};
}

EPL_ONNX_OP(LpPool) {
  return {.run = [](Import& i) {
    Attributes attributes = pool_attributes(i);
    if (!i.b.status().ok()) return;
    double p = static_cast<double>(i.integer("p", 2)), size = 1;
    for (int64_t k : attributes.ints("kernel")) size *= static_cast<double>(k);
    attributes.set("count_include_pad", true);
    Var x = i.b.unary("abs", i.in(0));
    Var mean = i.b.emit("avg_pool", {p == 2 ? x * x : i.b.pow(x, i.b.like(x, p))}, attributes);
    i.set(0, i.b.pow(mean * size, i.b.like(x, 1 / p)));
  }};
}

// The adjoint of a convolution, run forward.
EPL_ONNX_OP(ConvTranspose) {
  return {.run = [](Import& i) {
    Var x = i.in(0), w = i.in(1);
    const size_t spatial = static_cast<size_t>(std::max(x.ndim() - 2, 0));
    Ints strides = i.ints("strides", Ints(spatial, 1)), dilations = i.ints("dilations", Ints(spatial, 1)),
         more = i.ints("output_padding", Ints(spatial, 0));
    Ints pads = i.ints("pads", Ints(2 * spatial, 0)), wanted = i.ints("output_shape", {});
    int64_t groups = i.integer("group", 1);
    if (w.ndim() != x.ndim() || spatial == 0 || strides.size() != spatial || dilations.size() != spatial ||
        more.size() != spatial || pads.size() != 2 * spatial) {
      return i.fail("kernel, strides and input do not fit");
    }
    const Ints group = {groups};
    if (!bounded(i, {&strides, &dilations, &group}, 1) || !bounded(i, {&more, &pads, &wanted}, 0)) return;
    const std::string automatic = auto_pad(i);
    Shape shape = {x.dim(0), w.dim(1) * groups};
    for (size_t d = 0; d < spatial; ++d) {
      const int at = static_cast<int>(d) + 2;
      int64_t whole = strides[d] * (x.dim(at) - 1) + more[d] + (w.dim(at) - 1) * dilations[d] + 1;
      bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
      if (wanted.size() == spatial || same) {  // the pads follow from the size of the result
        int64_t size = wanted.size() == spatial ? wanted[d] : x.dim(at) * strides[d],
                total = std::max<int64_t>(whole - size, 0);
        whole = std::max(whole, size);
        pads[d] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
        pads[d + spatial] = total - pads[d];
      }
      shape.push_back(whole - pads[d] - pads[d + spatial]);
    }
    Var y = i.b.emit(
        "conv_grad_input", {x, w},
        {{"strides", strides}, {"pads", pads}, {"dilations", dilations}, {"groups", groups}, {"shape", shape}});
    if (i.has(2)) {
      Shape channel(shape.size(), 1);
      channel[1] = shape[1];
      y = y + i.b.reshape(i.in(2), channel);
    }
    i.set(0, y);
  }};
}

}  // namespace epl::onnx
