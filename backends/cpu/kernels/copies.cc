// Ops that only move elements: reshape, transpose, broadcast_to, slice, concat, tile, constant padding and their
// adjoints. Any element type. Each op is a list of strided copies, made once, and perhaps a fill before them.
#include <algorithm>

#include "backends/cpu/kernels/rows.h"
#include "backends/cpu/kernels/strided_copy.h"

namespace epl::cpu {
namespace {

using Dims = std::vector<StridedCopy::Dim>;

struct Move {
  int input;
  int64_t source, target;  // bytes to the elements at index 0
  StridedCopy copy;
};
struct PreparedMoves {
  enum class Fill { none, zero, second_operand } fill = Fill::none;
  DType type = DType::f32;
  std::vector<Move> moves;

  // Offsets in elements. A copy of nothing is left out.
  void add(int input, int64_t source, int64_t target, Dims dims) {
    int64_t bytes = static_cast<int64_t>(dtype_bytes(type));
    StridedCopy copy(std::move(dims), type);
    if (copy.elements() > 0) moves.push_back({input, source * bytes, target * bytes, std::move(copy)});
  }
};

void launch(const KernelCall& call) {
  const PreparedMoves& prepared = *static_cast<const PreparedMoves*>(call.state);
  const TensorType& y = call.query.out(0);
  if (prepared.fill == PreparedMoves::Fill::zero) fill_bytes(call.outputs[0], y.bytes(), 0, call.threads());
  if (prepared.fill == PreparedMoves::Fill::second_operand)
    fill_elements(call.inputs[1], y.dtype, call.outputs[0], y.elements(), call.threads());
  for (const Move& move : prepared.moves) {
    move.copy.run(call.in<std::byte>(move.input) + move.source, call.out<std::byte>(0) + move.target, call.threads());
  }
}

Result<Prepared> over_anything(const KernelQuery& q) { return Prepared{.aliases = every_alias(q)}; }
void same_bytes(const KernelCall& call) {
  copy_bytes(call.inputs[0], call.outputs[0], call.query.out(0).bytes(), call.threads());
}

void prepare_transpose(const KernelQuery& q, PreparedMoves& prepared) {
  Shape from = row_major_strides(q.in(0).shape), to = row_major_strides(q.out(0).shape);
  const Ints& perm = q.attributes.ints("perm");
  Dims dims;
  for (size_t d = 0; d < perm.size(); ++d)
    dims.push_back({q.out(0).shape[d], from[perm[d] < 0 ? perm[d] + perm.size() : perm[d]], to[d]});
  prepared.add(0, 0, 0, std::move(dims));
}

void prepare_broadcast(const KernelQuery& q, PreparedMoves& prepared) {
  const Shape &x = q.in(0).shape, &y = q.out(0).shape;
  Shape from = row_major_strides(x), to = row_major_strides(y);
  size_t shift = y.size() - x.size();
  Dims dims;
  for (size_t d = 0; d < y.size(); ++d) {
    bool repeated = d < shift || x[d - shift] == 1;
    dims.push_back({y[d], repeated ? 0 : from[d - shift], to[d]});
  }
  prepared.add(0, 0, 0, std::move(dims));
}

// How a slice of a tensor of shape `full` lies in it: its first element, and the step along every dimension.
struct SliceView {
  int64_t first = 0;
  Shape strides;
};
SliceView slice_view(const Attributes& attributes, const Shape& full) {
  const Ints &axes = attributes.ints("axes"), &starts = attributes.ints("starts");
  const Ints* steps = attributes.has("steps") ? &attributes.ints("steps") : nullptr;
  SliceView view{0, row_major_strides(full)};
  Shape dense = view.strides;
  for (size_t i = 0; i < axes.size(); ++i) {
    size_t d = axes[i] < 0 ? axes[i] + full.size() : axes[i];
    view.first += starts[i] * dense[d];
    if (steps && !steps->empty()) view.strides[d] = dense[d] * (*steps)[i];
  }
  return view;
}

void prepare_slice(const KernelQuery& q, PreparedMoves& prepared) {
  const Shape& y = q.out(0).shape;
  SliceView view = slice_view(q.attributes, q.in(0).shape);
  Shape to = row_major_strides(y);
  Dims dims;
  for (size_t d = 0; d < y.size(); ++d) dims.push_back({y[d], view.strides[d], to[d]});
  prepared.add(0, view.first, 0, std::move(dims));
}

void prepare_slice_grad(const KernelQuery& q, PreparedMoves& prepared) {
  const Shape& dy = q.in(0).shape;
  prepared.fill = PreparedMoves::Fill::zero;
  SliceView view = slice_view(q.attributes, q.out(0).shape);
  Shape from = row_major_strides(dy);
  Dims dims;
  // Where the slice runs backwards, both are walked from the other end.
  int64_t source = 0, target = view.first;
  for (size_t d = 0; d < dy.size(); ++d) {
    bool backwards = view.strides[d] < 0;
    if (backwards) source += (dy[d] - 1) * from[d], target += (dy[d] - 1) * view.strides[d];
    dims.push_back({dy[d], backwards ? -from[d] : from[d], backwards ? -view.strides[d] : view.strides[d]});
  }
  prepared.add(0, source, target, std::move(dims));
}

void prepare_concat(const KernelQuery& q, PreparedMoves& prepared) {
  int axis = q.axis("axis");
  Shape to = row_major_strides(q.out(0).shape);
  int64_t at = 0;
  for (int i = 0; i < q.inputs(); ++i) {
    const Shape& x = q.in(i).shape;
    Shape from = row_major_strides(x);
    Dims dims;
    for (size_t d = 0; d < x.size(); ++d) dims.push_back({x[d], from[d], to[d]});
    prepared.add(i, 0, at * to[axis], std::move(dims));
    at += x[axis];
  }
}

void prepare_tile(const KernelQuery& q, PreparedMoves& prepared) {
  const Shape& x = q.in(0).shape;
  Shape from = row_major_strides(x), to = row_major_strides(q.out(0).shape);
  const Ints& repeats = q.attributes.ints("repeats");
  Dims dims;
  for (size_t d = 0; d < x.size(); ++d) {
    dims.push_back({repeats[d], 0, to[d] * x[d]});
    dims.push_back({x[d], from[d], to[d]});
  }
  prepared.add(0, 0, 0, std::move(dims));
}

// The common part of a tensor of shape `inner` and of one with `begin` more elements in front of every dimension:
// copied into the padded one if `grow`, else out of it.
void prepare_common(const KernelQuery& q, const Shape& inner, const Shape& padded, bool grow, PreparedMoves& prepared) {
  const Ints& begin = q.attributes.ints("begin");
  Shape inner_strides = row_major_strides(inner), padded_strides = row_major_strides(padded);
  int64_t in_inner = 0, in_padded = 0;
  Dims dims;
  for (size_t d = 0; d < inner.size(); ++d) {
    int64_t first = std::max<int64_t>(0, -begin[d]), last = std::min(inner[d], padded[d] - begin[d]);  // of the inner
    in_inner += first * inner_strides[d];
    in_padded += (first + begin[d]) * padded_strides[d];
    int64_t n = std::max<int64_t>(0, last - first), a = inner_strides[d], b = padded_strides[d];
    dims.push_back(grow ? StridedCopy::Dim{n, a, b} : StridedCopy::Dim{n, b, a});
  }
  prepared.add(0, grow ? in_inner : in_padded, grow ? in_padded : in_inner, std::move(dims));
}
void prepare_pad(const KernelQuery& q, PreparedMoves& prepared) {
  prepared.fill = q.has(1) ? PreparedMoves::Fill::second_operand : PreparedMoves::Fill::zero;
  prepare_common(q, q.in(0).shape, q.out(0).shape, true, prepared);
}
void prepare_pad_grad(const KernelQuery& q, PreparedMoves& prepared) {
  prepared.fill = PreparedMoves::Fill::zero;
  prepare_common(q, q.out(0).shape, q.in(0).shape, false, prepared);
}

template <void (*make)(const KernelQuery&, PreparedMoves&)> Result<Prepared> prepare(const KernelQuery& q) {
  auto prepared = std::make_shared<PreparedMoves>();
  prepared->type = q.out(0).dtype;
  make(q, *prepared);
  return Prepared{.state = prepared};
}

template <void (*make)(const KernelQuery&, PreparedMoves&)> Result<Prepared> prepare_padding(const KernelQuery& q) {
  EPL_TRY(require(q.attributes.text("mode") == "constant", "padding with elements of the operand"));
  return prepare<make>(q);
}

}  // namespace

EPL_KERNELS(cpu, copies) {
  for (const char* op : {"reshape", "identity", "stop_gradient"}) {
    table.add({.op = op, .name = "same_bytes", .prepare = over_anything, .launch = same_bytes});
  }
  table.add({.op = "transpose", .name = "transpose_copy", .prepare = prepare<prepare_transpose>, .launch = launch});
  table.add({.op = "broadcast_to", .name = "broadcast_copy", .prepare = prepare<prepare_broadcast>, .launch = launch});
  table.add({.op = "slice", .name = "slice_copy", .prepare = prepare<prepare_slice>, .launch = launch});
  table.add({.op = "slice_grad", .name = "slice_grad_copy", .prepare = prepare<prepare_slice_grad>, .launch = launch});
  table.add({.op = "concat", .name = "concat_copy", .prepare = prepare<prepare_concat>, .launch = launch});
  table.add({.op = "tile", .name = "tile_copy", .prepare = prepare<prepare_tile>, .launch = launch});
  table.add({.op = "pad", .name = "pad_copy", .prepare = prepare_padding<prepare_pad>, .launch = launch});
  table.add(
      {.op = "pad_grad", .name = "pad_grad_copy", .prepare = prepare_padding<prepare_pad_grad>, .launch = launch});
}

}  // namespace epl::cpu
