// Ops that only move elements: reshape, transpose, broadcast_to, slice, concat, tile, constant padding and their
// adjoints. Any element type.
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

DType type_of(const Query& q) { return q.out(0).dtype; }

Result<Kernel> same_bytes(const Query& q) {
  Kernel kernel;
  for (int i = 0; i < static_cast<int>(q.inputs.size()); ++i)
    if (q.in(i).bytes() == q.out(0).bytes()) kernel.aliases.push_back({i, 0});
  add_copy(kernel, type_of(q), input(0), output(0), {{q.out(0).elements(), 1}}, {{q.out(0).elements(), 1}});
  return kernel;
}

Result<Kernel> transpose(const Query& q) {
  const Shape from = row_major_strides(q.in(0).shape), &y = q.out(0).shape;
  const std::vector<int64_t>& perm = q.integers("perm");
  Walks source;
  for (size_t d = 0; d < perm.size(); ++d)
    source.push_back(
        {y[d], from[static_cast<size_t>(perm[d] < 0 ? perm[d] + static_cast<int64_t>(perm.size()) : perm[d])]});
  Kernel kernel;
  add_copy(kernel, type_of(q), input(0), output(0), source, row_major(y));
  return kernel;
}

Result<Kernel> broadcast_to(const Query& q) {
  const Shape &x = q.in(0).shape, &y = q.out(0).shape, from = row_major_strides(x);
  const size_t shift = y.size() - x.size();
  Walks source;
  for (size_t d = 0; d < y.size(); ++d) source.push_back({y[d], d < shift || x[d - shift] == 1 ? 0 : from[d - shift]});
  Kernel kernel;
  add_copy(kernel, type_of(q), input(0), output(0), source, row_major(y));
  return kernel;
}

// How a slice of a tensor of shape `full` lies in it: its first element, and the step along every dimension.
struct SliceView {
  int64_t first = 0;
  Shape strides;
};
SliceView slice_view(const Query& q, const Shape& full) {
  const std::vector<int64_t>&axes = q.integers("axes"), &starts = q.integers("starts");
  const Attribute* steps = q.find("steps");
  SliceView view{0, row_major_strides(full)};
  const Shape dense = view.strides;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<size_t>(axes[i] < 0 ? axes[i] + static_cast<int64_t>(full.size()) : axes[i]);
    view.first += starts[i] * dense[d];
    if (steps && !steps->integers.empty()) view.strides[d] = dense[d] * steps->integers[i];
  }
  return view;
}
Walks walks_of(const SliceView& view, const Shape& shape) {
  Walks walks;
  for (size_t d = 0; d < shape.size(); ++d) walks.push_back({shape[d], view.strides[d]});
  return walks;
}

Result<Kernel> slice(const Query& q) {
  const SliceView view = slice_view(q, q.in(0).shape);
  Kernel kernel;
  add_copy(kernel, type_of(q), input(0), output(0), walks_of(view, q.out(0).shape), row_major(q.out(0).shape),
           view.first);
  return kernel;
}

Result<Kernel> slice_grad(const Query& q) {
  const SliceView view = slice_view(q, q.out(0).shape);
  Kernel kernel;
  add_fill(kernel, type_of(q), output(0), q.out(0).elements());
  add_copy(kernel, type_of(q), input(0), output(0), row_major(q.in(0).shape), walks_of(view, q.in(0).shape), 0,
           view.first);
  return kernel;
}

Result<Kernel> concat(const Query& q) {
  const auto axis = static_cast<size_t>(q.axis("axis"));
  const Shape to = row_major_strides(q.out(0).shape);
  Kernel kernel;
  int64_t at = 0;
  for (size_t i = 0; i < q.inputs.size(); ++i) {
    const Shape& x = q.inputs[i].type.shape;
    Walks target;
    for (size_t d = 0; d < x.size(); ++d) target.push_back({x[d], to[d]});
    add_copy(kernel, type_of(q), input(static_cast<int64_t>(i)), output(0), row_major(x), target, 0, at * to[axis]);
    at += x[axis];
  }
  return kernel;
}

Result<Kernel> tile(const Query& q) {
  const Shape &x = q.in(0).shape, from = row_major_strides(x), to = row_major_strides(q.out(0).shape);
  const std::vector<int64_t>& repeats = q.integers("repeats");
  Walks source, target;
  for (size_t d = 0; d < x.size(); ++d) {
    source.push_back({repeats[d], 0});
    source.push_back({x[d], from[d]});
    target.push_back({repeats[d], to[d] * x[d]});
    target.push_back({x[d], to[d]});
  }
  Kernel kernel;
  add_copy(kernel, type_of(q), input(0), output(0), source, target);
  return kernel;
}

// The common part of a tensor of shape `inner` and of one with `begin` more elements in front of every dimension:
// copied into the padded one if `grow`, else out of it.
void add_common(Kernel& kernel, const Query& q, const Shape& inner, const Shape& padded, bool grow) {
  const std::vector<int64_t>& begin = q.integers("begin");
  const Shape of_inner = row_major_strides(inner), of_padded = row_major_strides(padded);
  int64_t in_inner = 0, in_padded = 0;
  Walks a, b;
  for (size_t d = 0; d < inner.size(); ++d) {
    const int64_t first = std::max<int64_t>(0, -begin[d]), last = std::min(inner[d], padded[d] - begin[d]);
    in_inner += first * of_inner[d];
    in_padded += (first + begin[d]) * of_padded[d];
    const int64_t n = std::max<int64_t>(0, last - first);
    a.push_back({n, of_inner[d]});
    b.push_back({n, of_padded[d]});
  }
  grow ? add_copy(kernel, type_of(q), input(0), output(0), a, b, in_inner, in_padded)
       : add_copy(kernel, type_of(q), input(0), output(0), b, a, in_padded, in_inner);
}
Result<Kernel> pad(const Query& q) {
  EPL_TRY(require(q.text("mode") == "constant", "padding with elements of the operand"));
  Kernel kernel;
  q.has(1) ? add_spread(kernel, type_of(q), input(1), output(0), q.out(0).elements())
           : add_fill(kernel, type_of(q), output(0), q.out(0).elements());
  add_common(kernel, q, q.in(0).shape, q.out(0).shape, true);
  return kernel;
}
Result<Kernel> pad_grad(const Query& q) {
  EPL_TRY(require(q.text("mode") == "constant", "padding with elements of the operand"));
  Kernel kernel;
  add_fill(kernel, type_of(q), output(0), q.out(0).elements());
  add_common(kernel, q, q.out(0).shape, q.in(0).shape, false);
  return kernel;
}

}  // namespace

Rows copy_rows() {
  return {{"reshape", "same_bytes", {}, same_bytes},
          {"identity", "same_bytes", {}, same_bytes},
          {"stop_gradient", "same_bytes", {}, same_bytes},
          {"transpose", "transpose_copy", {}, transpose},
          {"broadcast_to", "broadcast_copy", {}, broadcast_to},
          {"slice", "slice_copy", {}, slice},
          {"slice_grad", "slice_grad_copy", {}, slice_grad},
          {"concat", "concat_copy", {}, concat},
          {"tile", "tile_copy", {}, tile},
          {"pad", "pad_copy", {}, pad},
          {"pad_grad", "pad_grad_copy", {}, pad_grad}};
}

}  // namespace epl::cuda
