// Ops that rearrange elements. Shapes in attributes are of the full tensors; `localize` makes them follow a cut.
#include <algorithm>
#include <cstring>

#include "core/ops/common.h"

namespace epl {
using namespace ops;

static Result<ShardingRule> broadcast_rule(const OpQuery& q) {
  return elementwise_rule(input_types(q), output_types(q));
}

static void local_output_shape(Attributes& attributes, const std::vector<TensorType>&,
                               const std::vector<TensorType>& out) {
  attributes.set("shape", out[0].shape);
}

EPL_OP(reshape) {
  return {.doc = "The same elements in row-major order under another shape; every size is given.",
          .signature = "x -> y",
          .attributes = {{"shape", Ints{}, true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            const Ints& shape = q.attributes().ints("shape");
            for (int64_t size : shape)
              if (size < 0) return misfit(q, "shape ", shape, " has a negative size");
            if (element_count(shape) != q.in(0).elements())
              return misfit(q, "shape ", shape, " holds ", element_count(shape), " elements, not ", q.in(0).elements());
            return OutputTypes{{q.in(0).dtype, shape}};
          },
          .reference =
              [](const Reference& r) {
                if (r.in(0).bytes() > 0) std::memcpy(r.out(0).data(), r.in(0).data(), r.in(0).bytes());
              },
          .gradient = [](Grad& g) { g.set(0, g.b.reshape(g.upstream(0), g.in(0).shape())); },
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> { return reshape_rule(q.in(0), q.out(0)); },
          .localize = local_output_shape,
          .view = true,
          .moves = Moves::all,
          .samples = {"f32[4,6] {shape=[2,12]}", "f32[4,6] {shape=[4,2,3]}", "f32[2,3,4] {shape=[6,4]}",
                      "f32[2,3,4] {shape=[24]}", "i64[6] {shape=[1,6,1]}", "f32[] {shape=[1]}"}};
}

EPL_OP(transpose) {
  return {.doc = "y[i of perm] = x: dimension d of y is dimension perm[d] of x.",
          .signature = "x -> y",
          .attributes = {{"perm", Ints{}, true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            const Ints& perm = q.attributes().ints("perm");
            EPL_ASSIGN(auto seen, checked_axes(q, perm, q.in(0).ndim()));
            if (perm.size() != seen.size() || std::any_of(perm.begin(), perm.end(), [](int64_t d) { return d < 0; }))
              return misfit(q, "perm ", perm, " is not a permutation of the dimensions");
            TensorType type = q.in(0);
            for (size_t d = 0; d < perm.size(); ++d) type.shape[d] = q.in(0).shape[perm[d]];
            return OutputTypes{type};
          },
          .reference =
              [](const Reference& r) {
                const Ints& perm = r.attributes().ints("perm");
                const Shape& shape = r.in(0).shape();
                Dims strides(shape.size(), 1);
                for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
                for_each_index(r.out(0).shape(), [&](int64_t o, const Dims& index) {
                  int64_t i = 0;
                  for (size_t d = 0; d < perm.size(); ++d) i += index[d] * strides[perm[d]];
                  copy_element(r.in(0), i, r.out(0), o);
                });
              },
          .gradient =
              [](Grad& g) {
                const Ints& perm = g.attributes().ints("perm");
                Ints inverse(perm.size());
                for (size_t d = 0; d < perm.size(); ++d) inverse[perm[d]] = static_cast<int64_t>(d);
                g.set(0, g.b.transpose(g.upstream(0), inverse));
              },
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            const Ints& perm = q.attributes().ints("perm");
            RuleWriter rule(q);
            for (size_t d = 0; d < perm.size(); ++d) {
              const int factor = rule.factor(q.out(0).shape[d]);
              rule.input(0, static_cast<int>(perm[d]), factor);
              rule.output(0, static_cast<int>(d), factor);
            }
            return rule.done();
          },
          .moves = Moves::all,
          .samples = {"f32[4,7] {perm=[1,0]}", "f32[2,3,4] {perm=[1,2,0]}", "f32[2,3,4,5] {perm=[0,2,1,3]}",
                      "i32[3,1,2] {perm=[2,0,1]}"}};
}

EPL_OP(broadcast_to) {
  return {.doc = "x repeated to `shape` by NumPy's rules.",
          .signature = "x -> y",
          .attributes = {{"shape", Ints{}, true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            const Ints& shape = q.attributes().ints("shape");
            auto joined = broadcast_shapes(q.in(0).shape, shape);
            if (!joined.ok() || *joined != shape) return misfit(q, "does not broadcast to ", shape);
            return OutputTypes{{q.in(0).dtype, shape}};
          },
          .reference =
              [](const Reference& r) {
                const Shape& from = r.in(0).shape();
                const size_t added = r.out(0).shape().size() - from.size();
                for_each_index(r.out(0).shape(), [&](int64_t o, const Dims& index) {
                  int64_t i = 0;
                  for (size_t d = 0; d < from.size(); ++d) i = i * from[d] + (from[d] == 1 ? 0 : index[d + added]);
                  copy_element(r.in(0), i, r.out(0), o);
                });
              },
          .gradient = [](Grad& g) { g.set(0, g.upstream(0)); },
          .sharding_of = broadcast_rule,
          .localize = local_output_shape,
          .moves = Moves::repeated,
          .samples = {"f32[7] {shape=[4,7]}", "f32[4,1] {shape=[4,7]}", "f32[] {shape=[2,3]}",
                      "i64[2,1,3] {shape=[4,2,5,3]}"}};
}

// --- slices ---

namespace {
// Per dimension: the first index, the step and the number taken.
struct SliceDims {
  Dims start, step, count;
  bool full(size_t d, const Shape& shape) const { return start[d] == 0 && step[d] == 1 && count[d] == shape[d]; }
};
SliceDims slice_dims(const Attributes& attributes, const Shape& shape) {
  SliceDims s{Dims(shape.size()), Dims(shape.size(), 1), Dims(shape)};
  const Ints &axes = attributes.ints("axes"), &starts = attributes.ints("starts"), &ends = attributes.ints("ends"),
             &steps = attributes.ints("steps");
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t d = axes[k], step = steps.empty() ? 1 : steps[k];
    const int64_t distance = step > 0 ? ends[k] - starts[k] : starts[k] - ends[k];
    s.start[d] = starts[k];
    s.step[d] = step;
    s.count[d] = distance <= 0 ? 0 : (distance - 1) / std::abs(step) + 1;
  }
  return s;
}

constexpr int64_t max_step = int64_t{1} << 31;  // beyond most dimensions, and far from overflow

Status check_slice(const OpQuery& q, const Shape& shape) {
  const Ints &axes = q.attributes().ints("axes"), &starts = q.attributes().ints("starts"),
             &ends = q.attributes().ints("ends"), &steps = q.attributes().ints("steps");
  EPL_ASSIGN(auto mask, checked_axes(q, axes, static_cast<int>(shape.size())));
  if (starts.size() != axes.size() || ends.size() != axes.size() || (!steps.empty() && steps.size() != axes.size()))
    return misfit(q, "axes, starts, ends and steps differ in length");
  for (size_t k = 0; k < axes.size(); ++k) {
    if (axes[k] < 0) return misfit(q, "axis ", axes[k], " is negative");
    const int64_t size = shape[axes[k]], step = steps.empty() ? 1 : steps[k];
    if (const int64_t bound = std::max(size, max_step); step < -bound || step > bound)
      return misfit(q, "a step of ", step, " is more than ", bound);
    const bool right = step > 0   ? starts[k] >= 0 && starts[k] <= size && ends[k] >= 0 && ends[k] <= size
                       : step < 0 ? starts[k] >= -1 && starts[k] < size && ends[k] >= -1 && ends[k] < size
                                  : false;
    if (!right)
      return misfit(q, "start ", starts[k], ", end ", ends[k], ", step ", step, " leave dimension ", axes[k],
                    " of size ", size);
  }
  return {};
}

// Of a slice of a tensor of `shape`. Dimensions taken in full correspond. One that is made of equal parts, of which the
// slice takes one, is a factor of parts and a factor of a part: what is cut inside every part is sliced as before.
Result<ShardingRule> slice_rule(const OpQuery& q, const Shape& shape, bool of_gradient) {
  const SliceDims s = slice_dims(q.attributes(), shape);
  RuleWriter rule(q);
  for (size_t d = 0; d < shape.size(); ++d) {
    const int dim = static_cast<int>(d);
    const int64_t count = s.count[d];
    const bool parts = s.step[d] == 1 && count > 1 && s.start[d] % count == 0 && shape[d] % count == 0;
    if (!s.full(d, shape) && !parts) continue;
    const int factor = rule.factor(count);
    std::vector<int> large = {factor};
    if (shape[d] != count) large.insert(large.begin(), rule.factor(shape[d] / count, true));
    rule.input(0, dim, of_gradient ? std::vector{factor} : large);
    rule.output(0, dim, of_gradient ? large : std::vector{factor});
  }
  return rule.done();
}

// Starts and ends in what is left of each dimension; `taken` is the local shape of the slice.
void localize_bounds(Attributes& attributes, const Shape& taken) {
  const Ints &axes = attributes.ints("axes"), &steps = attributes.ints("steps");
  Ints starts = attributes.ints("starts"), ends = attributes.ints("ends");
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t count = ends[k] - starts[k], local = taken[static_cast<size_t>(axes[k])];
    if ((!steps.empty() && steps[k] != 1) || count <= 0 || local == count) continue;
    starts[k] = starts[k] / count * local;
    ends[k] = starts[k] + local;
  }
  attributes.set("starts", starts);
  attributes.set("ends", ends);
}

int64_t sliced_index(const SliceDims& s, const Shape& shape, const Dims& index) {
  int64_t i = 0;
  for (size_t d = 0; d < shape.size(); ++d) i = i * shape[d] + s.start[d] + index[d] * s.step[d];
  return i;
}

Attributes slice_attributes(const Attributes& a) {
  return {{"axes", a.ints("axes")}, {"starts", a.ints("starts")}, {"ends", a.ints("ends")}, {"steps", a.ints("steps")}};
}
}  // namespace

EPL_OP(slice) {
  return {
      .doc =
          "y = x[start:end:step] along `axes`; starts and ends are not negative, except that -1 stands for before the "
          "first element where the step is negative; ends are exclusive.",
      .signature = "x -> y",
      .attributes = {{"axes", Ints{}, true}, {"starts", Ints{}, true}, {"ends", Ints{}, true}, {"steps", Ints{}}},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        EPL_TRY(check_slice(q, q.in(0).shape));
        return OutputTypes{{q.in(0).dtype, slice_dims(q.attributes(), q.in(0).shape).count.shape()}};
      },
      .reference =
          [](const Reference& r) {
            const SliceDims s = slice_dims(r.attributes(), r.in(0).shape());
            for_each_index(r.out(0).shape(), [&](int64_t o, const Dims& index) {
              copy_element(r.in(0), sliced_index(s, r.in(0).shape(), index), r.out(0), o);
            });
          },
      .gradient =
          [](Grad& g) {
            Attributes attributes = slice_attributes(g.attributes());
            attributes.set("shape", g.in(0).shape());
            g.set(0, g.b.emit("slice_grad", {g.upstream(0)}, attributes));
          },
      .sharding_of = [](const OpQuery& q) { return slice_rule(q, q.in(0).shape, false); },
      .localize = [](Attributes& attributes, const std::vector<TensorType>&,
                     const std::vector<TensorType>& out) { localize_bounds(attributes, out[0].shape); },
      .moves = Moves::some,
      .samples = {"f32[4,8] {axes=[1],starts=[2],ends=[6]}",
                  "f32[4,8] {axes=[0,1],starts=[0,7],ends=[4,-1],steps=[1,-2]}",
                  "f32[4,7] {axes=[1],starts=[1],ends=[7],steps=[3]}",
                  "i64[6] {axes=[0],starts=[5],ends=[-1],steps=[-1]}", "f32[3,4] {axes=[0],starts=[1],ends=[1]}"}};
}

namespace {

// Slices that lie side by side along one dimension and fill it: their gradients are a concat, which writes each element
// once. A sum would write it once for each slice, and then add zeros.
Var joined_slices(Builder& builder, const std::vector<Var>& parts) {
  struct Slice {
    int64_t begin, end;
    Value dy;
  };
  const Graph& graph = builder.graph();
  std::vector<Slice> slices;
  int64_t axis = -1;
  for (const Var& part : parts) {
    const Node& node = graph.node(graph.value(part.value()).producer);
    const Ints &axes = node.attributes.ints("axes"), &steps = node.attributes.ints("steps");
    if (axes.size() != 1 || (axis >= 0 && axes[0] != axis) || (!steps.empty() && steps[0] != 1)) return {};
    axis = axes[0];
    const int64_t begin = node.attributes.ints("starts")[0];
    slices.push_back({begin, begin + graph.type(node.inputs[0]).shape[axis], node.inputs[0]});
  }
  std::ranges::sort(slices, {}, &Slice::begin);
  std::vector<Var> joined;
  int64_t end = 0;
  for (const Slice& slice : slices) {
    if (slice.begin != end) return {};
    end = slice.end;
    joined.push_back(builder.var(slice.dy));
  }
  return end == parts[0].dim(static_cast<int>(axis)) ? builder.concat(joined, axis) : Var();
}

}  // namespace

EPL_OP(slice_grad) {
  return {.doc = "The adjoint of slice: dy at the places that the slice of a tensor of `shape` takes, zeros elsewhere.",
          .signature = "dy -> dx",
          .attributes = {{"shape", Ints{}, true},
                         {"axes", Ints{}, true},
                         {"starts", Ints{}, true},
                         {"ends", Ints{}, true},
                         {"steps", Ints{}}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            const Shape& shape = q.attributes().ints("shape");
            EPL_TRY(check_slice(q, shape));
            EPL_TRY(expect_shape(q, 0, slice_dims(q.attributes(), shape).count.shape(), "dy"));
            return OutputTypes{{q.in(0).dtype, shape}};
          },
          .reference =
              [](const Reference& r) {
                const SliceDims s = slice_dims(r.attributes(), r.out(0).shape());
                for_each_index(r.in(0).shape(), [&](int64_t i, const Dims& index) {
                  copy_element(r.in(0), i, r.out(0), sliced_index(s, r.out(0).shape(), index));
                });
              },
          .gradient = [](Grad& g) { g.set(0, g.b.emit("slice", {g.upstream(0)}, slice_attributes(g.attributes()))); },
          .sharding_of = [](const OpQuery& q) { return slice_rule(q, q.out(0).shape, true); },
          .localize =
              [](Attributes& attributes, const std::vector<TensorType>& in, const std::vector<TensorType>& out) {
                attributes.set("shape", out[0].shape);
                localize_bounds(attributes, in[0].shape);
              },
          .joined = joined_slices,
          .samples = {"f32[4,4] {shape=[4,8],axes=[1],starts=[2],ends=[6]}",
                      "f32[4,4] {shape=[4,8],axes=[0,1],starts=[0,7],ends=[4,-1],steps=[1,-2]}"}};
}

// --- joining and repeating ---

namespace {

// Of operands of one size along the axis, that is a factor of operands and a factor of an operand.
Result<ShardingRule> concat_rule(const OpQuery& q) {
  const int axis = q.axis("axis", q.in(0).ndim());
  const int64_t size = q.in(0).shape[static_cast<size_t>(axis)];
  RuleWriter rule(q);
  const auto tie = [&](int dim, int factor, const std::vector<int>& of_result) {
    for (int i = 0; i < q.inputs(); ++i) rule.input(i, dim, factor);
    rule.output(0, dim, of_result);
  };
  for (int d = 0; d < q.in(0).ndim(); ++d) {
    if (d == axis) continue;
    const int factor = rule.factor(q.in(0).shape[static_cast<size_t>(d)]);
    tie(d, factor, {factor});
  }
  for (int i = 0; i < q.inputs(); ++i) {
    if (q.in(i).shape[static_cast<size_t>(axis)] != size) return rule.done();
  }
  const int operands = rule.factor(q.inputs(), true), factor = rule.factor(size);
  tie(axis, factor, {operands, factor});
  return rule.done();
}

}  // namespace

EPL_OP(concat) {
  return {.doc = "The operands one after the other along `axis`; other sizes are equal.",
          .signature = "x* -> y",
          .attributes = {{"axis", int64_t{0}, true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_TRY(same_dtypes(q));
            TensorType type = q.in(0);
            EPL_ASSIGN(const int axis, checked_axis(q, q.attributes().integer("axis"), type.ndim()));
            type.shape[axis] = 0;
            for (int i = 0; i < q.inputs(); ++i) {
              Shape rest = q.in(i).shape;
              if (rest.size() != type.shape.size()) return misfit(q, "numbers of dimensions differ");
              const int64_t size = rest[axis];
              rest[axis] = type.shape[axis];
              if (rest != type.shape) return misfit(q, "sizes differ outside of axis ", axis);
              type.shape[axis] += size;
            }
            return OutputTypes{type};
          },
          .reference =
              [](const Reference& r) {
                const int axis = r.query().axis("axis", r.out(0).type().ndim());
                const AxisSpan all = span_at(r.out(0).shape(), axis);
                int64_t begin = 0;
                for (int k = 0; k < r.query().inputs(); ++k) {
                  const AxisSpan part = span_at(r.in(k).shape(), axis);
                  const int64_t run = part.size * part.inner;
                  for (int64_t o = 0; o < part.outer; ++o)
                    for (int64_t i = 0; i < run; ++i)
                      copy_element(r.in(k), o * run + i, r.out(0), (o * all.size + begin) * all.inner + i);
                  begin += part.size;
                }
              },
          .gradient =
              [](Grad& g) {
                const int axis = g.axis("axis", g.upstream(0).ndim());
                int64_t begin = 0;
                for (int i = 0; i < g.inputs(); ++i) {
                  const int64_t end = begin + g.in(i).dim(axis);
                  if (g.needs(i)) g.set(i, g.b.slice(g.upstream(0), {axis}, {begin}, {end}));
                  begin = end;
                }
              },
          .sharding_of = concat_rule,
          .moves = Moves::some,
          .samples = {"f32[4,3], f32[4,5] {axis=1}", "f32[2,3,4], f32[1,3,4], f32[4,3,4] {axis=0}",
                      "i64[2], i64[3] {axis=-1}"}};
}

EPL_OP(tile) {
  return {.doc = "x repeated repeats[d] times along each dimension d.",
          .signature = "x -> y",
          .attributes = {{"repeats", Ints{}, true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            const Ints& repeats = q.attributes().ints("repeats");
            TensorType type = q.in(0);
            if (repeats.size() != type.shape.size())
              return misfit(q, "repeats ", repeats, " needs one count per dimension");
            for (size_t d = 0; d < repeats.size(); ++d) {
              if (repeats[d] < 0) return misfit(q, "repeats ", repeats, " has a negative count");
              type.shape[d] *= repeats[d];
            }
            return OutputTypes{type};
          },
          .reference =
              [](const Reference& r) {
                const Shape& from = r.in(0).shape();
                for_each_index(r.out(0).shape(), [&](int64_t o, const Dims& index) {
                  int64_t i = 0;
                  for (size_t d = 0; d < from.size(); ++d) i = i * from[d] + index[d] % from[d];
                  copy_element(r.in(0), i, r.out(0), o);
                });
              },
          // Each dimension becomes (repeat, size), then the repeats are summed.
          .gradient =
              [](Grad& g) {
                const Ints& repeats = g.attributes().ints("repeats");
                Shape split;
                Ints axes;
                for (size_t d = 0; d < repeats.size(); ++d) {
                  if (repeats[d] != 1) {
                    axes.push_back(static_cast<int64_t>(split.size()));
                    split.push_back(repeats[d]);
                  }
                  split.push_back(g.in(0).shape()[d]);
                }
                g.set(0, g.b.reshape(g.b.sum(g.b.reshape(g.upstream(0), split), axes, false), g.in(0).shape()));
              },
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            const Ints& repeats = q.attributes().ints("repeats");
            std::vector<bool> unshardable(repeats.size());
            for (size_t d = 0; d < unshardable.size(); ++d) unshardable[d] = repeats[d] != 1;
            return aligned_rule(q, unshardable);
          },
          .samples = {"f32[4,3] {repeats=[1,2]}", "f32[2,3] {repeats=[3,1]}", "f32[2,1,3] {repeats=[2,4,2]}"}};
}

EPL_OP(trilu) {
  return {.doc =
              "x above (`upper`) or below its k-th diagonal, that diagonal included, zeros elsewhere; over the last "
              "two dimensions.",
          .signature = "x -> y",
          .attributes = {{"upper", true}, {"k", int64_t{0}}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            if (q.in(0).ndim() < 2) return misfit(q, "needs at least two dimensions");
            return same_as_first(q);
          },
          .reference =
              [](const Reference& r) {
                const bool upper = r.attributes().flag("upper");
                const int64_t k = r.attributes().integer("k");
                const size_t n = r.in(0).shape().size();
                for_each_index(r.in(0).shape(), [&](int64_t i, const Dims& index) {
                  const int64_t off = index[n - 1] - index[n - 2];
                  if (upper ? off >= k : off <= k) copy_element(r.in(0), i, r.out(0), i);
                });
              },
          .gradient = [](Grad& g) { g.set(0, g.b.emit("trilu", {g.upstream(0)}, g.attributes())); },
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            const int ndim = q.in(0).ndim();
            return aligned_rule(q, axis_mask({ndim - 2, ndim - 1}, ndim));
          },
          .samples = {"f32[4,5]", "f32[2,4,4] {upper=false}", "f32[2,3,5] {upper=false,k=1}", "i64[3,3] {k=-1}"}};
}

}  // namespace epl
