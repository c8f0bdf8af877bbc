// Operators that move elements, and those that only compute shapes: the latter are constants here.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {
namespace {

// A bound that counts from the end where it is negative, within 0 and n.
int64_t bound(int64_t at, int64_t n) { return std::clamp<int64_t>(at < 0 ? at + n : at, 0, n); }

}  // namespace

EPL_ONNX_OP(Constant) {
  return {.run = [](Import& i) {
    if (i.has_attribute("value")) return i.set_constant(0, i.tensor("value"));
    if (i.has_attribute("value_float"))
      return i.set_constant(0, epl::Tensor::scalar(DType::f32, i.number("value_float", 0)));
    if (i.has_attribute("value_int"))
      return i.set_constant(0, epl::Tensor::from_ints({i.integer("value_int", 0)}).reshaped({}));
    if (i.has_attribute("value_ints")) return i.set_constant(0, epl::Tensor::from_ints(i.ints("value_ints", {})));
    if (i.has_attribute("value_floats")) {
      Doubles numbers = i.numbers("value_floats", {});
      epl::Tensor value(TensorType{DType::f32, {static_cast<int64_t>(numbers.size())}});
      for (size_t k = 0; k < numbers.size(); ++k) value.set(static_cast<int64_t>(k), numbers[k]);
      return i.set_constant(0, std::move(value));
    }
    i.fail(unsupported(i.has_attribute("sparse_value")
                           ? "its value is sparse, which is not supported; store it dense, as attribute value"
                           : "its value is a text, which nothing can compute with; train the model without it"));
  }};
}

EPL_ONNX_OP(Shape) {
  return {.run = [](Import& i) {
    const Shape& shape = i.type(0).shape;
    int64_t n = static_cast<int64_t>(shape.size());
    int64_t start = bound(i.integer("start", 0), n), end = std::max(start, bound(i.integer("end", n), n));
    i.set_constant(0, epl::Tensor::from_ints(Ints(shape.begin() + start, shape.begin() + end)));
  }};
}

EPL_ONNX_OP(Size) {
  return {.run = [](Import& i) { i.set_constant(0, epl::Tensor::from_ints({i.type(0).elements()}).reshaped({})); }};
}

EPL_ONNX_OP(ConstantOfShape) {
  return {.run = [](Import& i) {
    Ints shape = i.ints(0);
    epl::Tensor value = i.has_attribute("value") ? i.tensor("value") : epl::Tensor::scalar(DType::f32, 0);
    if (value.empty()) return;
    if (value.elements() != 1 || std::ranges::any_of(shape, [](int64_t size) { return size < 0; }))
      return i.fail(cat("one value in shape ", shape));
    i.set(0, i.b.broadcast_to(i.b.constant(value.reshaped({})), shape));
  }};
}

EPL_ONNX_OP(Range) {
  return {.run = [](Import& i) {
    for (int k = 0; k < 3; ++k) {
      if (!i.constant(k) || i.constant(k)->elements() != 1)
        return i.fail("its bounds must be known when the model is bound, and one number each");
    }
    DType dtype = i.type(0).dtype;
    double start = i.constant(0)->get(0), limit = i.constant(1)->get(0), delta = i.constant(2)->get(0);
    if (delta == 0) return i.fail("a step of zero");
    const double wanted = std::max(0.0, std::ceil((limit - start) / delta));
    if (!(wanted <= 1 << 24)) return i.fail(cat("a range of ", wanted, " elements"));
    epl::Tensor value(TensorType{dtype, {static_cast<int64_t>(wanted)}});
    for (int64_t k = 0; k < value.elements(); ++k) {
      if (is_float(dtype)) {
        value.set(k, start + static_cast<double>(k) * delta);
      } else {  // integers have more digits than a double
        value.set_int(k, i.constant(0)->get_int(0) + k * i.constant(2)->get_int(0));
      }
    }
    i.set_constant(0, std::move(value));
  }};
}

EPL_ONNX_OP(EyeLike) {
  return {.run = [](Import& i) {
    TensorType type = i.type(0);
    if (type.ndim() != 2) return i.fail("takes a matrix");
    if (type.elements() > (int64_t{1} << 24)) return i.fail(cat("a matrix of ", type.text()));
    if (i.has_attribute("dtype")) {
      auto dtype = dtype_of(static_cast<int32_t>(i.integer("dtype", 1)));
      if (!dtype.ok()) return i.fail(dtype.status());
      type.dtype = *dtype;
    }
    epl::Tensor eye(type);
    int64_t k = i.integer("k", 0);
    for (int64_t row = 0; row < type.dim(0); ++row) {
      if (row + k >= 0 && row + k < type.dim(1)) eye.set(row * type.dim(1) + row + k, 1);
    }
    i.set_constant(0, std::move(eye));
  }};
}

EPL_ONNX_OP(Reshape) {
  return {.run = [](Import& i) {
    Var x = i.in(0);
    Ints shape = i.ints(1);
    int64_t known = 1;
    int open = -1;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 0 && i.integer("allowzero", 0) == 0) shape[d] = x.dim(static_cast<int>(d));
      if (shape[d] == -1) {
        if (open >= 0) return i.fail(cat("the shape ", shape, " has two open dimensions"));
        open = static_cast<int>(d);
      } else {
        if (shape[d] < 0 || __builtin_mul_overflow(known, shape[d], &known))
          return i.fail(cat("the shape ", shape, " is impossible"));
      }
    }
    if (open >= 0) shape[open] = known > 0 ? x.type().elements() / known : 0;
    if (element_count(shape) != x.type().elements()) {
      return i.fail(cat(
          x.type().text(), " cannot become ", shape,
          "; a size is baked into this node: export with symbolic dimensions, or bind the sizes it was exported with"));
    }
    i.set(0, i.b.emit("reshape", {x}, {{"shape", shape}}));
  }};
}

EPL_ONNX_OP(Flatten) {
  return {.run = [](Import& i) {
    Var x = i.in(0);
    int64_t axis = i.integer("axis", 1), rows = 1;
    if (axis < 0) axis += x.ndim();
    if (axis < 0 || axis > x.ndim())
      return i.fail(cat("axis ", i.integer("axis", 1), " does not fit ", x.type().text()));
    for (int64_t d = 0; d < axis; ++d) rows *= x.dim(static_cast<int>(d));
    int64_t columns = rows > 0 ? x.type().elements() / rows : 0;
    i.set(0, i.b.emit("reshape", {x}, {{"shape", Ints{rows, columns}}}));
  }};
}

EPL_ONNX_OP(Squeeze) {
  return {.run = [](Import& i) {
    Var x = i.in(0);
    Ints axes = i.axes(i.list(1, "axes"), x.ndim()), shape;
    for (int d = 0; d < x.ndim(); ++d) {
      bool listed = std::ranges::find(axes, d) != axes.end();
      if (axes.empty() ? x.dim(d) == 1 : listed) {
        if (x.dim(d) != 1) return i.fail(cat("dimension ", d, " of ", x.type().text(), " is not 1"));
      } else {
        shape.push_back(x.dim(d));
      }
    }
    i.set(0, i.b.emit("reshape", {x}, {{"shape", shape}}));
  }};
}

EPL_ONNX_OP(Unsqueeze) {
  return {.run = [](Import& i) {
    Var x = i.in(0);
    Ints axes = i.list(1, "axes");
    if (axes.size() > 64) return i.fail(cat(axes.size(), " axes"));
    int ndim = x.ndim() + static_cast<int>(axes.size());
    Ints shape(ndim, -1);
    for (int64_t axis : i.axes(std::move(axes), ndim)) shape[axis] = 1;
    if (!i.b.status().ok()) return;
    int next = 0;
    for (int64_t& size : shape) {
      if (size == -1) size = x.dim(next++);
    }
    i.set(0, i.b.emit("reshape", {x}, {{"shape", shape}}));
  }};
}

EPL_ONNX_OP(Transpose) {
  return {.weights = {0}, .run = [](Import& i) {
            Ints reversed(i.in(0).ndim());
            for (size_t d = 0; d < reversed.size(); ++d) reversed[d] = static_cast<int64_t>(reversed.size() - 1 - d);
            i.set(0, i.b.emit("transpose", {i.in(0)}, {{"perm", i.ints("perm", reversed)}}));
          }};
}

EPL_ONNX_OP(Expand) {
  return {.run = [](Import& i) {
    auto shape = broadcast_shapes(i.type(0).shape, i.ints(1));
    if (!shape.ok()) return i.fail(shape.status());
    i.set(0, i.b.emit("broadcast_to", {i.in(0)}, {{"shape", Ints(*shape)}}));
  }};
}

EPL_ONNX_OP(Concat) {
  return {.run = [](Import& i) {
    std::vector<Var> parts;
    for (int k = 0; k < i.inputs(); ++k) parts.push_back(i.in(k));
    if (parts.empty()) return i.fail("has no operand");
    i.set(0, i.b.emit("concat", parts, {{"axis", i.axis("axis", 0, parts[0].ndim())}}));
  }};
}

namespace {

void slice(Import& i, Ints starts, Ints ends, Ints axes, Ints steps) {
  Var x = i.in(0);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size()) {
    return i.fail("starts, ends, axes and steps have different lengths");
  }
  axes = i.axes(std::move(axes), x.ndim());
  if (!i.b.status().ok()) return;
  for (size_t k = 0; k < starts.size(); ++k) {
    int64_t size = x.dim(static_cast<int>(axes[k]));
    if (steps[k] == 0) return i.fail("a step of zero");
    // A step over everything takes one element, however long it is.
    steps[k] = std::clamp<int64_t>(steps[k], -std::max<int64_t>(size, 1), std::max<int64_t>(size, 1));
    // Bounds as the standard clamps them; a backward slice ends before element 0 at -1.
    auto clamp = [&](int64_t at) {
      if (at < 0) at = at < -size ? -1 - size : at + size;
      return steps[k] > 0 ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
    };
    starts[k] = clamp(starts[k]);
    ends[k] = clamp(ends[k]);
    if (steps[k] > 0 && ends[k] < starts[k]) ends[k] = starts[k];
    if (steps[k] < 0 && ends[k] > starts[k]) ends[k] = starts[k];
  }
  i.set(0, i.b.slice(x, axes, starts, ends, steps));
}

Ints counted(size_t n) {
  Ints numbers(n);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

EPL_ONNX_OP(Slice) {
  return {.run = [](Import& i) {
    Ints starts = i.ints("starts", {});
    slice(i, starts, i.ints("ends", {}), i.ints("axes", counted(starts.size())), Ints(starts.size(), 1));
  }};
}
EPL_ONNX_OP(Slice, 10) {
  return {.run = [](Import& i) {
    Ints starts = i.ints(1);
    slice(i, starts, i.ints(2), i.has(3) ? i.ints(3) : counted(starts.size()),
          i.has(4) ? i.ints(4) : Ints(starts.size(), 1));
  }};
}

EPL_ONNX_OP(Split) {
  return {.run = [](Import& i) {
    Var x = i.in(0);
    int64_t axis = i.axis("axis", 0, x.ndim()), size = x.dim(static_cast<int>(axis));
    Ints sizes = i.list(1, "split");
    if (sizes.empty()) {
      int64_t parts = i.outputs(), each = parts > 0 ? (size + parts - 1) / parts : 0;
      if (i.integer("num_outputs", parts) != parts)
        return i.fail(cat("num_outputs is ", i.integer("num_outputs", parts), " for ", parts, " outputs"));
      for (int64_t p = 0; p < parts; ++p) sizes.push_back(std::max<int64_t>(0, std::min(each, size - p * each)));
    }
    if (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) != size ||
        static_cast<int>(sizes.size()) < i.outputs()) {
      return i.fail(cat("parts ", sizes, " do not make up dimension ", axis, " of ", x.type().text()));
    }
    int64_t at = 0;
    for (int k = 0; k < i.outputs(); ++k) {
      i.set(k, i.b.slice(x, {axis}, {at}, {at + sizes[k]}));
      at += sizes[k];
    }
  }};
}

}  // namespace epl::onnx
