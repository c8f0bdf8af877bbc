// Reductions over axes.
#include <algorithm>

#include "core/ir/op.h"
#include "core/ir/sums.h"
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

// f(x, axes, keep). What is summed over no axis is each element by itself: the norm of a number is its size.
template <class F> void reduce(Import& i, F&& f) {
  Var x = i.in(0);
  Reduction r = reduction(i);
  if (!r.nothing && !r.axes.empty()) {
    i.set(0, f(x, r.axes, r.keep));
    return;
  }
  Shape shape = x.shape();
  shape.push_back(1);
  i.set(0, f(i.b.reshape(x, shape), {x.ndim()}, false));
}

// Of numbers that are added up. The standard has sums of integers of 32 bits and more: smaller ones would wrap.
template <class F> void reduce_sums(Import& i, F&& f) {
  const TensorType& given = i.type(0);
  if (!is_float(given.dtype) && dtype_bytes(given.dtype) < 4)
    return i.fail(cat("it adds up ", given.text(), ", which the standard does not have; cast to int32 before it"));
  reduce(i, [&](const Var& x, const Ints& axes, bool keep) {
    return in_type_of_sums(i.b, x, [&](const Var& wide) { return f(wide, axes, keep); });
  });
}

// Of integers in float64: the result of a root or a logarithm becomes an integer as a cast makes it one.
template <class F> void reduce_reals(Import& i, F&& f) {
  reduce_sums(i, [&](const Var& x, const Ints& axes, bool keep) {
    return is_float(x.dtype()) ? f(x, axes, keep) : i.b.cast(f(i.b.cast(x, DType::f64), axes, keep), x.dtype());
  });
}

Var reduce_op(Builder& b, const char* op, const Var& x, const Ints& axes, bool keep) {
  return b.emit(op, {x}, {{"axes", axes}, {"keep", keep}});
}

// Truth values are ordered as 0 and 1.
Var extreme(Builder& b, const char* op, const Var& x, const Ints& axes, bool keep) {
  if (x.dtype() != DType::boolean) return reduce_op(b, op, x, axes, keep);
  return b.cast(reduce_op(b, op, b.cast(x, DType::u8), axes, keep), DType::boolean);
}

// The sum divided as integers, toward zero. The sum may be past the type though the mean is not: of 64 bits the
// quotients are added up, and what the divisions leave.
Var integer_mean(Builder& b, const Var& x, const Ints& axes, bool keep) {
  const double count = count_along(x, axes);
  if (dtype_bytes(x.dtype()) < 8) return b.cast(b.sum(b.cast(x, DType::i64), axes, keep) / count, x.dtype());
  const Var quotients = x / count, left = b.sum(x - quotients * count, axes, keep), carried = left / count;
  const Var total = b.sum(quotients, axes, keep) + carried;
  if (x.dtype() == DType::u64) return total;
  const Var rest = left - carried * count;  // the mean is total + rest / count
  const auto both = [&](const Var& p, const Var& q) { return b.emit("logical_and", {p, q}); };
  const Var zero = b.like(total, 0), one = b.like(total, 1);
  const Var above = b.select(both(total > 0.0, rest < 0.0), one, zero);
  return total - above + b.select(both(total < 0.0, rest > 0.0), one, zero);
}

}  // namespace

EPL_ONNX_OP(ReduceSum) {
  return {.run = [](Import& i) {
    reduce_sums(i, [&](const Var& x, const Ints& axes, bool keep) { return i.b.sum(x, axes, keep); });
  }};
}
EPL_ONNX_OP(ReduceMean) {
  return {.run = [](Import& i) {
    reduce_sums(i, [&](const Var& x, const Ints& axes, bool keep) {
      return is_float(x.dtype()) ? i.b.mean(x, axes, keep) : integer_mean(i.b, x, axes, keep);
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
    reduce_sums(i, [&](const Var& x, const Ints& axes, bool keep) { return i.b.sum(i.b.unary("abs", x), axes, keep); });
  }};
}
EPL_ONNX_OP(ReduceL2) {
  return {.run = [](Import& i) {
    reduce_reals(i, [&](const Var& x, const Ints& axes, bool keep) { return i.b.sqrt(i.b.sum(x * x, axes, keep)); });
  }};
}
EPL_ONNX_OP(ReduceSumSquare) {
  return {.run = [](Import& i) {
    reduce_sums(i, [&](const Var& x, const Ints& axes, bool keep) { return i.b.sum(x * x, axes, keep); });
  }};
}
EPL_ONNX_OP(ReduceLogSum) {
  return {.run = [](Import& i) {
    reduce_reals(i, [&](const Var& x, const Ints& axes, bool keep) { return i.b.log(i.b.sum(x, axes, keep)); });
  }};
}
// Shifted by the maximum, so that no exponential overflows.
EPL_ONNX_OP(ReduceLogSumExp) {
  return {.run = [](Import& i) {
    reduce_reals(i, [&](const Var& x, const Ints& axes, bool keep) {
      Var top = i.b.emit("stop_gradient", {i.b.max_along(x, axes, true)});
      top = i.b.select(i.b.emit("is_inf", {top}), i.b.like(top, 0), top);  // a row of -inf, or with inf, is that
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

}  // namespace epl::onnx
