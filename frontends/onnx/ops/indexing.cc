// Operators that gather, scatter, order and count elements.
#include <algorithm>
#include <numeric>

#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {
namespace {

// "none" or one of add, mul, max, min.
Attributes scatter_attributes(Import& i, Attributes attributes) {
  attributes.set("reduction", i.choice("reduction", {"none", "add", "mul", "max", "min"}));
  return attributes;
}

void arg_extreme(Import& i, const char* op) {
  i.set(0, i.b.emit(op, {i.in(0)},
                    {{"axis", i.axis("axis", 0, i.type(0).ndim())},
                     {"keep", i.integer("keepdims", 1) != 0},
                     {"last", i.integer("select_last_index", 0) != 0}}));
}

}  // namespace

namespace {

// Exporters write a reshape as a Gather of every element in its order (`x.flatten()[grid of positions]`).
bool takes_all_in_order(const epl::Tensor* indices, int64_t size) {
  if (!indices || indices->elements() != size) return false;
  for (int64_t at = 0; at < size; ++at) {
    if (indices->get_int(at) != at) return false;
  }
  return true;
}

}  // namespace

EPL_ONNX_OP(Gather) {
  return {.weights = {0}, .run = [](Import& i) {
            const Shape& x = i.type(0).shape;
            const int64_t axis = i.axis("axis", 0, i.type(0).ndim());
            const epl::Tensor* indices = i.constant(1);
            if (axis >= 0 && axis < static_cast<int64_t>(x.size()) &&
                takes_all_in_order(indices, x[static_cast<size_t>(axis)])) {
              Shape shape(x.begin(), x.begin() + axis);
              shape.insert(shape.end(), indices->shape().begin(), indices->shape().end());
              shape.insert(shape.end(), x.begin() + axis + 1, x.end());
              return i.set(0, i.b.reshape(i.in(0), shape));
            }
            i.set(0, i.b.emit("gather", {i.in(0), i.in(1)}, {{"axis", axis}}));
          }};
}

namespace {

// Exporters write `x` itself, moved, as a GatherND over a grid of positions. Its constants show the grid: every
// coordinate is the position along one dimension of the result. Returns that dimension for each, or nothing.
std::vector<int> grid_dimensions(const epl::Tensor& indices, const Shape& x) {
  const Shape& shape = indices.shape();
  int outer = static_cast<int>(shape.size()) - 1;
  int64_t tuple = outer >= 0 ? shape[outer] : 0;
  if (tuple != static_cast<int64_t>(x.size()) || indices.elements() == 0) return {};
  Shape strides = row_major_strides(Shape(shape.begin(), shape.end() - 1));
  int64_t points = indices.elements() / tuple;
  std::vector<int> found;
  for (int64_t c = 0; c < tuple; ++c) {
    int match = -1;
    for (int d = 0; d < outer && match < 0; ++d) {
      if (shape[d] != x[c] || std::ranges::find(found, d) != found.end()) continue;
      bool same = true;
      for (int64_t p = 0; p < points && same; ++p) same = indices.get_int(p * tuple + c) == p / strides[d] % shape[d];
      if (same) match = d;
    }
    if (match < 0) return {};
    found.push_back(match);
  }
  return found;
}

}  // namespace

EPL_ONNX_OP(GatherND) {
  return {.run = [](Import& i) {
    const epl::Tensor* indices = i.constant(1);
    std::vector<int> grid =
        indices && i.integer("batch_dims", 0) == 0 ? grid_dimensions(*indices, i.type(0).shape) : std::vector<int>();
    if (!grid.empty()) {
      // x's dimensions in the order of the result's, then ones where the result only repeats.
      Ints order(grid.size());
      std::iota(order.begin(), order.end(), 0);
      std::ranges::sort(order, {}, [&](int64_t c) { return grid[c]; });
      Shape shape(indices->shape().begin(), indices->shape().end() - 1), narrow(shape.size(), 1);
      for (int d : grid) narrow[d] = shape[d];
      i.set(0, i.b.broadcast_to(i.b.reshape(i.b.transpose(i.in(0), order), narrow), shape));
      return;
    }
    const Shape& tuples = i.type(1).shape;
    if (i.integer("batch_dims", 0) == 0 && !tuples.empty() && tuples.back() == 1) {
      // Tuples of one index gather rows. PyTorch writes `weights[expert_of_token]` so.
      const Var flat = i.b.reshape(i.in(1), Shape(tuples.begin(), tuples.end() - 1));
      i.set(0, i.b.emit("gather", {i.in(0), flat}, {{"axis", int64_t{0}}}));
      return;
    }
    i.set(0, i.b.emit("gather_nd", {i.in(0), i.in(1)}, {{"batch_dims", i.integer("batch_dims", 0)}}));
  }};
}

EPL_ONNX_OP(GatherElements) {
  return {.run = [](Import& i) {
    i.set(0, i.b.emit("gather_elements", {i.in(0), i.in(1)}, {{"axis", i.axis("axis", 0, i.type(0).ndim())}}));
  }};
}
EPL_ONNX_OP(ScatterElements) {
  return {.run = [](Import& i) {
    i.set(0, i.b.emit("scatter_elements", {i.in(0), i.in(1), i.in(2)},
                      scatter_attributes(i, {{"axis", i.axis("axis", 0, i.type(0).ndim())}})));
  }};
}
// The name that ScatterElements had before it got its own.
EPL_ONNX_OP(Scatter) {
  return {.until = 10, .run = [](Import& i) {
            i.set(0, i.b.emit("scatter_elements", {i.in(0), i.in(1), i.in(2)},
                              {{"axis", i.axis("axis", 0, i.type(0).ndim())}, {"reduction", std::string("none")}}));
          }};
}
EPL_ONNX_OP(ScatterND) {
  return {.run = [](Import& i) {
    i.set(0, i.b.emit("scatter_nd", {i.in(0), i.in(1), i.in(2)}, scatter_attributes(i, {})));
  }};
}
EPL_ONNX_OP(ArgMax) {
  return {.run = [](Import& i) { arg_extreme(i, "arg_max"); }};
}
EPL_ONNX_OP(ArgMin) {
  return {.run = [](Import& i) { arg_extreme(i, "arg_min"); }};
}

EPL_ONNX_OP(TopK) {
  return {.run = [](Import& i) {
    Ints k = i.has_attribute("k") ? Ints{i.integer("k", 0)} : i.ints(1);
    if (k.size() != 1) return i.fail("k must be one number");
    auto results = i.b.emit_all(
        "top_k", {i.in(0)},
        {{"k", k[0]}, {"axis", i.axis("axis", -1, i.type(0).ndim())}, {"largest", i.integer("largest", 1) != 0}});
    i.set(0, results[0]);
    if (i.wants(1)) i.set(1, results[1]);
  }};
}

EPL_ONNX_OP(OneHot) {
  return {.run = [](Import& i) {
    Ints depth = i.ints(1);
    if (depth.size() != 1) return i.fail("depth must be one number");
    Var indices = is_integer(i.type(0).dtype) ? i.in(0) : i.b.cast(i.in(0), DType::i64);
    i.set(0, i.b.emit("one_hot", {indices, i.in(2)},
                      {{"axis", i.axis("axis", -1, i.type(0).ndim() + 1)}, {"depth", depth[0]}}));
  }};
}

EPL_ONNX_OP(CumSum) {
  return {.run = [](Import& i) {
    Ints axis = i.ints(1);
    if (axis.size() != 1) return i.fail("axis must be one number");
    i.set(0, i.b.emit("cum_sum", {i.in(0)},
                      {{"axis", i.axis(axis[0], i.type(0).ndim())},
                       {"exclusive", i.integer("exclusive", 0) != 0},
                       {"reverse", i.integer("reverse", 0) != 0}}));
  }};
}

EPL_ONNX_OP(Trilu) {
  return {.run = [](Import& i) {
    Ints k = i.has(1) ? i.ints(1) : Ints{0};
    if (k.size() != 1) return i.fail("k must be one number");
    i.set(0, i.b.emit("trilu", {i.in(0)}, {{"upper", i.integer("upper", 1) != 0}, {"k", k[0]}}));
  }};
}

// The number of results depends on the values, which must therefore be known.
EPL_ONNX_OP(NonZero) {
  return {.run = [](Import& i) {
    const epl::Tensor* x = i.constant(0);
    if (!x) return i.fail(unsupported("its operand must be known when the model is bound, as it decides a shape"));
    Shape strides = row_major_strides(x->shape());
    Ints found;
    for (int64_t k = 0; k < x->elements(); ++k) {
      if (x->get(k) != 0) found.push_back(k);
    }
    const int64_t ndim = x->type().ndim(), count = static_cast<int64_t>(found.size());
    epl::Tensor out({DType::i64, {ndim, count}});
    for (int64_t d = 0; d < ndim; ++d) {
      for (int64_t k = 0; k < count; ++k) out.set_int(d * count + k, found[k] / strides[d] % x->shape()[d]);
    }
    i.set_constant(0, std::move(out));
  }};
}

EPL_ONNX_OP(Compress) {
  return {.run = [](Import& i) {
    Ints condition = i.ints(1), kept;
    Var x = i.in(0);
    int64_t axis = 0;
    if (i.has_attribute("axis")) {
      axis = i.axis("axis", 0, x.ndim());
    } else {
      x = i.b.reshape(x, {x.type().elements()});
    }
    for (size_t k = 0; k < condition.size(); ++k) {
      if (condition[k]) kept.push_back(static_cast<int64_t>(k));
    }
    i.set(0, i.b.emit("gather", {x, i.b.constant(epl::Tensor::from_ints(kept))}, {{"axis", axis}}));
  }};
}

}  // namespace epl::onnx
