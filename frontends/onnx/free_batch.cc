#include "frontends/onnx/free_batch.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/ir/op.h"

namespace epl::onnx {
namespace {

bool freed(const Slot* slot) { return slot && slot->in_file && *slot->in_file != slot->type.shape; }

Ints constant_ints(const Slot* slot) { return slot && !slot->constant.empty() ? slot->constant.to_ints() : Ints{}; }

// The one dimension in which they differ; -1 where there is none, or several.
int differing_dim(const Shape& file, const Shape& now) {
  int found = -1;
  for (size_t d = 0; d < std::min(file.size(), now.size()); ++d) {
    if (file[d] == now[d]) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(d);
  }
  return found;
}

int64_t elements_before(const Shape& shape, int dim) {
  return element_count(Shape(shape.begin(), shape.begin() + dim));
}

// What the file holds for one of its samples, if all of them have the same: else an empty tensor.
epl::Tensor one_of_all(const epl::Tensor& all, int dim) {
  const Shape& shape = all.shape();
  const int64_t outer = elements_before(shape, dim), size = shape[static_cast<size_t>(dim)];
  const size_t step = all.elements() == 0 ? 0 : all.bytes() / static_cast<size_t>(outer * size);
  TensorType type = all.type();
  type.shape[static_cast<size_t>(dim)] = 1;
  epl::Tensor one(type);
  const auto* from = static_cast<const char*>(all.data());
  for (int64_t o = 0; o < outer; ++o) {
    const char* const first = from + static_cast<size_t>(o * size) * step;
    for (int64_t i = 1; i < size; ++i) {
      if (std::memcmp(first, first + static_cast<size_t>(i) * step, step) != 0) return {};
    }
    std::memcpy(static_cast<char*>(one.data()) + static_cast<size_t>(o) * step, first, step);
  }
  return one;
}

// Whether a value is the same all along a dimension, by the nodes that have made it, of which it looks at `left`.
bool same_along(const epl::Graph& graph, Value v, int dim, int& left) {
  const Shape& shape = graph.type(v).shape;
  const epl::ValueInfo& info = graph.value(v);
  if (shape[static_cast<size_t>(dim)] == 1) return true;
  if (!info.producer) return info.kind == ValueKind::constant && !one_of_all(info.data, dim).empty();
  if (--left < 0) return false;
  const epl::Node& node = graph.node(info.producer);
  const auto same = [&](size_t operand, int at) { return same_along(graph, node.inputs[operand], at, left); };
  const auto dims = [&](Value x) { return static_cast<int>(graph.type(x).shape.size()); };
  const std::string_view op = node.op->name;
  if (op == "broadcast_to" || node.op->scalar) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int at = node.inputs[i] ? dim - static_cast<int>(shape.size()) + dims(node.inputs[i]) : -1;
      if (at >= 0 && !same(i, at)) return false;
    }
    return true;
  }
  if (op == "gather") {
    const int axis = static_cast<int>(node.attributes.integer("axis")), indices = dims(node.inputs[1]);
    if (axis < 0 || dim < axis) return axis >= 0 && same(0, dim);
    return dim < axis + indices ? same(1, dim - axis) : same(0, dim - indices + 1);
  }
  if (op == "transpose") return same(0, static_cast<int>(node.attributes.ints("perm")[static_cast<size_t>(dim)]));
  if (op == "reshape") {
    const Shape& before = graph.type(node.inputs[0]).shape;
    for (int d = 0; d < static_cast<int>(before.size()); ++d) {
      if (before[static_cast<size_t>(d)] == shape[static_cast<size_t>(dim)] &&
          elements_before(before, d) == elements_before(shape, dim))
        return same(0, d);
    }
  }
  return false;
}

struct Operands {
  const Node& node;
  const std::vector<Shape>& results_in_file;
  FreedBatch batch;
  Builder& builder;
  std::vector<Slot*>& inputs;
  std::vector<Slot>& made;

  bool has(size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
  void replace(size_t i, Slot slot) {
    made[i] = std::move(slot);
    inputs[i] = &made[i];
  }
  void replace(size_t i, const Ints& values) {
    epl::Tensor value = epl::Tensor::from_ints(values);
    replace(i, {.constant = value, .type = value.type()});
  }
  // The same for every sample: one of the file's single sample becomes as many as there are.
  void repeat(size_t i, int dim) {
    Slot& old = *inputs[i];
    Var x = old.var ? old.var : builder.constant(old.constant);
    Shape shape = x.shape();
    shape[static_cast<size_t>(dim)] = batch.to;
    Var repeated = builder.broadcast_to(x, shape);
    replace(i, {.var = repeated, .type = repeated.type(), .in_file = old.type.shape});
  }
  // Of an operand that holds the same for each of the file's samples, that of one. False where it does not.
  bool narrow(size_t i, int dim) {
    const Slot& old = *inputs[i];
    if (old.sequence || old.type.shape[static_cast<size_t>(dim)] != batch.from) return false;
    if (old.constant.empty()) {
      int left = 100;
      if (!old.var || !same_along(builder.graph(), old.var.value(), dim, left)) return false;
      const Var one = builder.slice(old.var, {dim}, {0}, {1});
      replace(i, {.var = one, .type = one.type()});
    } else {
      const epl::Tensor one = one_of_all(old.constant, dim);
      if (one.empty()) return false;
      replace(i, {.constant = one, .type = one.type()});
    }
    return true;
  }
  int64_t integer(std::string_view name, int64_t fallback) const {
    for (const Attribute& a : node.attributes) fallback = a.name == name ? a.i : fallback;
    return fallback;
  }
};

Status free_reshape(Operands& o) {
  if (!freed(o.inputs[0]) || o.results_in_file.empty()) return {};
  const Slot& x = *o.inputs[0];
  EPL_ASSIGN(FreedShape made, freed_shape(*x.in_file, x.type.shape, x.outer, o.results_in_file[0], o.batch));
  o.replace(1, Ints(made.shape.begin(), made.shape.end()));
  return {};
}

// Sizes of the result, dimension by dimension those of the operand or chosen.
Status free_sizes(Operands& o, size_t operand) {
  Ints sizes = constant_ints(o.has(operand) ? o.inputs[operand] : nullptr);
  const Shape& before = o.inputs[0]->type.shape;
  for (size_t d = 0; d < sizes.size() && !freed(o.inputs[0]) && sizes.size() == before.size(); ++d) {
    if (sizes[d] != 1 && sizes[d] != before[d] && before[d] == o.batch.from && o.narrow(0, static_cast<int>(d)))
      return {};  // a state at the start, of all samples, is asked for as many as there are
  }
  if (!freed(o.inputs[0]) || sizes.size() != o.inputs[0]->type.shape.size()) return {};
  const Shape &file = *o.inputs[0]->in_file, &now = o.inputs[0]->type.shape;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (file[d] != now[d] && sizes[d] == file[d]) sizes[d] = now[d];
  }
  o.replace(operand, sizes);
  return {};
}

// A slice that takes all samples of the file takes all samples.
Status free_slice(Operands& o) {
  const Ints starts = constant_ints(o.has(1) ? o.inputs[1] : nullptr);
  Ints ends = constant_ints(o.has(2) ? o.inputs[2] : nullptr), axes = constant_ints(o.has(3) ? o.inputs[3] : nullptr);
  if (!freed(o.inputs[0]) || starts.size() != ends.size() || ends.empty()) return {};
  const Shape &file = *o.inputs[0]->in_file, &now = o.inputs[0]->type.shape;
  const int64_t ndim = static_cast<int64_t>(file.size());
  for (size_t k = 0; k < ends.size(); ++k) {
    int64_t axis = k < axes.size() ? axes[k] : static_cast<int64_t>(k);
    axis = axis < 0 ? axis + ndim : axis;
    if (axis < 0 || axis >= ndim || file[static_cast<size_t>(axis)] == now[static_cast<size_t>(axis)]) continue;
    if (starts[k] == 0 && ends[k] >= file[static_cast<size_t>(axis)]) ends[k] = std::numeric_limits<int64_t>::max();
  }
  o.replace(2, ends);
  return {};
}

// Elements of samples are scattered over a constant of one number: as much of it as there are samples.
Status free_scatter(Operands& o) {
  if (!o.has(1) || !freed(o.inputs[1]) || o.inputs[0]->constant.empty()) return {};
  const epl::Tensor& all = o.inputs[0]->constant;
  const Shape &file = *o.inputs[1]->in_file, &now = o.inputs[1]->type.shape;
  const int dim = differing_dim(file, now);
  if (dim < 0 || dim >= all.type().ndim() || all.shape()[static_cast<size_t>(dim)] != file[static_cast<size_t>(dim)])
    return {};
  for (int64_t i = 1; i < all.elements(); ++i) {
    if (all.get(i) != all.get(0)) return {};
  }
  TensorType type = all.type();
  type.shape[static_cast<size_t>(dim)] = now[static_cast<size_t>(dim)];
  epl::Tensor room(type);
  for (int64_t i = 0; i < room.elements(); ++i) room.set(i, all.get(0));
  o.replace(0, {.constant = room, .type = type, .in_file = all.shape()});
  return {};
}

// Tuples of indices of which one coordinate counts the samples, as exporters take an element of each: those of the
// file's first sample, once for each sample.
Status free_gather_nd(Operands& o) {
  if (!o.has(1) || !freed(o.inputs[0]) || o.inputs[1]->constant.empty() || o.integer("batch_dims", 0) != 0) return {};
  const epl::Tensor& all = o.inputs[1]->constant;
  const Shape& shape = all.shape();
  const int sample = differing_dim(*o.inputs[0]->in_file, o.inputs[0]->type.shape);
  if (sample < 0 || shape.empty() || sample >= shape.back()) return {};
  for (int dim = 0; dim + 1 < static_cast<int>(shape.size()); ++dim) {
    if (shape[static_cast<size_t>(dim)] != o.batch.from) continue;
    TensorType type = all.type();
    type.shape[static_cast<size_t>(dim)] = o.batch.to;
    epl::Tensor made(type);
    const int64_t outer = elements_before(shape, dim), step = all.elements() / (outer * o.batch.from);
    // Element i of the tuples of a sample, from those of the first.
    const auto of = [&](int64_t run, int64_t of_sample, int64_t i) {
      return i % shape.back() == sample ? of_sample : all.get_int(run * o.batch.from * step + i);
    };
    bool counts = true;
    for (int64_t i = 0; i < all.elements() && counts; ++i)
      counts = all.get_int(i) == of(i / step / o.batch.from, i / step % o.batch.from, i % step);
    if (!counts) continue;
    for (int64_t i = 0; i < made.elements(); ++i)
      made.set_int(i, of(i / step / o.batch.to, i / step % o.batch.to, i % step));
    o.replace(1, {.constant = made, .type = type, .in_file = shape});
    return {};
  }
  return {};
}

// Indices of which those of a sample are those of the sample before it, and as many more as a sample has elements.
// Those of a single sample count samples if they take all its elements in their order; else they may mean the first
// sample.
Status free_gather(Operands& o) {
  if (!o.has(1) || !freed(o.inputs[0]) || o.inputs[0]->outer != 1 || o.inputs[1]->constant.empty()) return {};
  const epl::Tensor& all = o.inputs[1]->constant;
  const Shape &file = *o.inputs[0]->in_file, &shape = all.shape();
  const int64_t ndim = static_cast<int64_t>(file.size()), axis = o.integer("axis", 0);
  const int along = static_cast<int>(axis < 0 ? axis + ndim : axis);
  if (differing_dim(file, o.inputs[0]->type.shape) != along) return {};
  const int64_t more = file[static_cast<size_t>(along)] / o.batch.from;
  bool in_order = more > 1 && all.elements() == more;
  for (int64_t i = 0; i < all.elements() && in_order; ++i) in_order = all.get_int(i) == i;
  if (o.batch.from == 1 && !in_order) return {};
  for (int dim = 0; dim < static_cast<int>(shape.size()); ++dim) {
    if (shape[static_cast<size_t>(dim)] != o.batch.from) continue;
    const int64_t run = all.elements() / elements_before(shape, dim), step = run / o.batch.from;
    // Element i of `samples` samples, from those of the first.
    const auto of = [&](int64_t i, int64_t samples) {
      const int64_t outer = i / (step * samples), sample = i / step % samples;
      return all.get_int(outer * run + i % step) + sample * more;
    };
    bool counts = true;
    for (int64_t i = 0; i < all.elements() && counts; ++i) counts = all.get_int(i) == of(i, o.batch.from);
    if (!counts) continue;
    TensorType type = all.type();
    type.shape[static_cast<size_t>(dim)] = o.batch.to;
    epl::Tensor made(type);
    for (int64_t i = 0; i < made.elements(); ++i) made.set_int(i, of(i, o.batch.to));
    o.replace(1, {.constant = made, .type = type, .in_file = shape});
    return {};
  }
  return {};
}

// What is the same for every sample meets what is not: positions and masks that the exporter computed for all samples.
Status free_broadcast(Operands& o) {
  const auto first = std::ranges::find_if(o.inputs, freed);
  if (first == o.inputs.end()) return {};
  const Shape file = *(*first)->in_file, now = (*first)->type.shape;
  const int ndim = static_cast<int>(file.size()), dim = differing_dim(file, now);
  if (dim < 0 || file[static_cast<size_t>(dim)] != o.batch.from) return {};
  for (size_t i = 0; i < o.inputs.size(); ++i) {
    if (!o.has(i) || freed(o.inputs[i])) continue;
    const int at = dim - ndim + static_cast<int>(o.inputs[i]->type.shape.size());
    if (at >= 0 && o.inputs[i]->type.shape[static_cast<size_t>(at)] > 1) o.narrow(i, at);
  }
  return {};
}

// Parts that are the same for every sample stand beside parts that are not.
Status free_concat(Operands& o) {
  const auto first = std::ranges::find_if(o.inputs, freed);
  if (first == o.inputs.end()) return {};
  const Shape file = *(*first)->in_file, now = (*first)->type.shape;
  const int64_t ndim = static_cast<int64_t>(now.size()), axis = o.integer("axis", 0);
  for (int64_t d = 0; d < ndim; ++d) {
    if (file[static_cast<size_t>(d)] == now[static_cast<size_t>(d)] || d == (axis < 0 ? axis + ndim : axis)) continue;
    for (size_t i = 0; i < o.inputs.size(); ++i) {
      const bool fits = o.has(i) && !freed(o.inputs[i]) && static_cast<int64_t>(o.inputs[i]->type.shape.size()) == ndim;
      if (!fits || now[static_cast<size_t>(d)] != o.batch.to) continue;
      const int64_t has = o.inputs[i]->type.shape[static_cast<size_t>(d)];
      if (has == o.batch.from && (has == 1 || o.narrow(i, static_cast<int>(d)))) o.repeat(i, static_cast<int>(d));
    }
  }
  return {};
}

// States at the start, [directions, batch, hidden].
Status free_recurrence(Operands& o) {
  if (!freed(o.inputs[0]) || o.integer("layout", 0) != 0) return {};
  for (size_t i : {5, 6}) {
    const bool fits =
        o.has(i) && !freed(o.inputs[i]) && o.inputs[i]->type.ndim() == 3 && o.inputs[i]->type.dim(1) == o.batch.from;
    if (fits && (o.batch.from == 1 || o.narrow(i, 1))) o.repeat(i, 1);
  }
  return {};
}

}  // namespace

Result<FreedShape> freed_shape(const Shape& file, const Shape& now, int64_t outer, const Shape& out, FreedBatch batch) {
  const int at = differing_dim(file, now);
  if (at < 0) return invalid("the batch is in several dimensions of ", now);
  // In row-major order the batch begins after this many elements: in the dimension of the file's batch that begins
  // there, else in the one that it is merged into.
  const int64_t before = elements_before(file, at) * outer;
  int64_t begins = 1;
  int exact = -1, merged = -1;
  int64_t outer_of_merged = 1;
  for (size_t d = 0; d < out.size() && out[d] > 0; ++d) {
    if (begins == before && out[d] == batch.from && exact < 0) exact = static_cast<int>(d);
    const bool inside =
        begins <= before && before % begins == 0 && out[d] > 1 && out[d] % (before / begins * batch.from) == 0;
    if (inside && merged < 0) {
      merged = static_cast<int>(d);
      outer_of_merged = before / begins;
    }
    begins *= out[d];
  }
  const int dim = exact >= 0 ? exact : merged;
  if (dim < 0)
    return invalid("a batch of ", batch.from, " is baked into the shape ", out, ", and it cannot be seen where");
  FreedShape made{out, exact >= 0 ? 1 : outer_of_merged};
  made.shape[static_cast<size_t>(dim)] = out[static_cast<size_t>(dim)] / batch.from * batch.to;
  if (element_count(made.shape) != element_count(now))
    return invalid("a batch of ", batch.from, " is baked into the shape ", out, " of ", file);
  return made;
}

int64_t outer_of_result(const Node& node, const std::vector<Slot>& operands, const Slot& result) {
  if (!result.in_file) return 1;
  const int dim = differing_dim(*result.in_file, result.type.shape);
  if (dim < 0) return 1;
  const size_t d = static_cast<size_t>(dim);
  for (const Slot& x : operands) {
    const int from = x.in_file ? differing_dim(*x.in_file, x.type.shape) : -1;
    if (from < 0) continue;
    // The same numbers in the same order: the batch stays where it was.
    if (node.op_type == "Reshape" || node.op_type == "Flatten" || node.op_type == "Squeeze" ||
        node.op_type == "Unsqueeze") {
      const int64_t before = elements_before(*x.in_file, from) * x.outer,
                    begins = elements_before(*result.in_file, dim);
      return begins > 0 && before % begins == 0 ? std::max<int64_t>(before / begins, 1) : 1;
    }
    const size_t f = static_cast<size_t>(from);
    if ((*x.in_file)[f] == (*result.in_file)[d] && x.type.shape[f] == result.type.shape[d]) return x.outer;
  }
  return 1;
}

Status free_operands(const Node& node, const std::vector<Shape>& results_in_file, FreedBatch batch, Builder& builder,
                     std::vector<Slot*>& inputs, std::vector<Slot>& made) {
  made.resize(inputs.size());
  if (inputs.empty() || (!node.domain.empty() && node.domain != "ai.onnx")) return {};
  Operands o{node, results_in_file, batch, builder, inputs, made};
  if (node.op_type == "Concat") return free_concat(o);
  if (!o.has(0)) return {};
  if (node.op_type == "Reshape") return free_reshape(o);
  if (node.op_type == "Expand") return free_sizes(o, 1);
  if (node.op_type == "Resize") return free_sizes(o, 3);
  if (node.op_type == "Slice") return free_slice(o);
  if (node.op_type == "Gather") return free_gather(o);
  if (node.op_type == "GatherND") return free_gather_nd(o);
  if (node.op_type == "ScatterElements" || node.op_type == "Scatter") return free_scatter(o);
  constexpr std::string_view broadcasts[] = {
      "Add",  "Sub",         "Mul", "Div", "Pow", "Where", "And", "Or", "Equal", "Greater", "GreaterOrEqual",
      "Less", "LessOrEqual", "Min", "Max"};
  if (std::ranges::find(broadcasts, node.op_type) != std::end(broadcasts)) return free_broadcast(o);
  if (node.op_type == "LSTM" || node.op_type == "GRU" || node.op_type == "RNN") return free_recurrence(o);
  return {};
}

}  // namespace epl::onnx
