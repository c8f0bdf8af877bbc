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
