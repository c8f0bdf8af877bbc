// Slices and their gradients.
#include <algorithm>

#include "core/ops/common.h"

namespace epl {
using namespace ops;

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
  return {
      .doc = "The adjoint of slice: dy at the positions that the slice of a tensor of `shape` takes, zeros elsewhere.",
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

}  // namespace epl
