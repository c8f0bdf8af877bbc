// Slices gathered by integer indices along one axis, the adjoint that adds duplicates in canonical order, and ops that
// use or find indices: one-hot and the largest elements. Indices may be negative and then count from the end; an index
// out of range reads NaN (0 for integers), which the step's check for finite values reports, and adds nothing.
#include <algorithm>
#include <cmath>

#include "core/ir/index_range.h"
#include "core/ir/partition_rule.h"
#include "core/ops/indexing.h"

namespace epl {
using namespace ops;

namespace {
// x [pre..., axis, post...] with indices [i...] -> [pre..., i..., post...]. The adjoint has the same correspondence.
ShardingRule gather_rule(const OpQuery& q, int axis, bool adjoint) {
  const Shape& full = adjoint ? q.out(0).shape : q.in(0).shape;
  const int indices = q.in(1).ndim(), ndim = static_cast<int>(full.size());
  RuleWriter rule(q);
  const auto tie = [&](int full_dim, int picked_dim, int factor) {
    adjoint ? rule.output(0, full_dim, factor) : rule.input(0, full_dim, factor);
    adjoint ? rule.input(0, picked_dim, factor) : rule.output(0, picked_dim, factor);
  };
  for (int d = 0; d < ndim; ++d)
    if (d != axis) tie(d, d < axis ? d : d + indices - 1, rule.factor(full[d]));
  for (int d = 0; d < indices; ++d) {
    const int factor = rule.factor(q.in(1).shape[d]);
    rule.input(1, d, factor);
    adjoint ? rule.input(0, axis + d, factor) : rule.output(0, axis + d, factor);
  }
  return rule.done();
}

Shape gathered_shape(const Shape& x, int axis, const Shape& indices) {
  Shape shape(x.begin(), x.begin() + axis);
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), x.begin() + axis + 1, x.end());
  return shape;
}
}  // namespace

EPL_OP(gather) {
  return {.doc = "Slices of x along `axis` at the indices: x[a..., n, b...], indices[i...] -> y[a..., i..., b...].",
          .signature = "x, indices -> y",
          .attributes = {{"axis", int64_t{0}}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_TRY(integer_operand(q, 1));
            EPL_ASSIGN(const int axis, checked_axis(q, q.attributes().integer("axis"), q.in(0).ndim()));
            return OutputTypes{{q.in(0).dtype, gathered_shape(q.in(0).shape, axis, q.in(1).shape)}};
          },
          .reference =
              [](const Reference& r) {
                const AxisSpan s = span_at(r.in(0).shape(), r.query().axis("axis", r.in(0).type().ndim()));
                const int64_t count = r.in(1).elements();
                for (int64_t o = 0; o < s.outer; ++o)
                  for (int64_t k = 0; k < count; ++k) {
                    const int64_t row = wrapped_index(r.in(1).get_int(k), s.size);
                    for (int64_t i = 0; i < s.inner; ++i) {
                      const int64_t to = (o * count + k) * s.inner + i;
                      row < 0 ? store_out_of_range(r.out(0), to)
                              : copy_element(r.in(0), (o * s.size + row) * s.inner + i, r.out(0), to);
                    }
                  }
              },
          .gradient =
              [](Grad& g) {
                const int64_t axis = g.axis("axis", g.in(0).ndim());
                g.set(0, g.b.emit("gather_grad", {g.upstream(0), g.in(1)},
                                  {{"axis", axis}, {"size", g.in(0).dim(static_cast<int>(axis))}}));
              },
          .no_gradient_inputs = {1},
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            return gather_rule(q, q.axis("axis", q.in(0).ndim()), false);
          },
          .moves = Moves::some,
          .samples = {"f32[7,4], i64[4,6](-7..7)", "f32[4,7,2], i64[6](0..7) {axis=1}",
                      "f32[4,7], i32[](0..7) {axis=-1}", "i64[5], i64[4](0..5)"}};
}

EPL_INDICES(gather) {
  const int64_t rows = q.in(0).shape[static_cast<size_t>(q.axis("axis", q.in(0).ndim()))];
  return {.input = 1, .low = -rows, .high = rows, .what = cat("index into ", rows, " rows")};
}

EPL_PARTITION(gather) {
  return {.ties =
              [](Ties& t) {
                const int axis = t.q.axis("axis", t.q.in(0).ndim());
                t.input(0, axis, t.factor(t.q.in(0).shape[static_cast<size_t>(axis)]));
              },
          .indices = 1};
}

EPL_OP(gather_grad) {
  return {.doc =
              "Gradient of gather's x, with `size` along `axis`: dy[a..., i..., b...], indices[i...] -> dx[a..., size, "
              "b...]; "
              "slices of equal index are added.",
          .signature = "dy, indices -> dx",
          .attributes = {{"axis", int64_t{0}}, {"size", int64_t{0}, true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_TRY(integer_operand(q, 1));
            const int axis = static_cast<int>(q.attributes().integer("axis")), indices = q.in(1).ndim();
            const Shape& dy = q.in(0).shape;
            if (axis < 0 || axis + indices > q.in(0).ndim() ||
                !std::equal(q.in(1).shape.begin(), q.in(1).shape.end(), dy.begin() + axis))
              return misfit(q, "dy lacks the dimensions of the indices at axis ", axis);
            Shape shape(dy.begin(), dy.begin() + axis);
            shape.push_back(q.attributes().integer("size"));
            shape.insert(shape.end(), dy.begin() + axis + indices, dy.end());
            return OutputTypes{{q.in(0).dtype, shape}};
          },
          .reference =
              [](const Reference& r) {
                const int axis = static_cast<int>(r.attributes().integer("axis"));
                const AxisSpan s = span_at(r.out(0).shape(), axis);
                const int64_t count = r.in(1).elements();
                const Units units = r.units();
                EPL_CHECK(units.divide(count), count, " indices in ", units.count, " units");
                const int64_t elements = r.out(0).elements();
                const std::span<double> parts = r.room<double>(units.count * elements);
                for (int64_t o = 0; o < s.outer; ++o)
                  for (int64_t k = 0; k < count; ++k) {
                    const int64_t row = wrapped_index(r.in(1).get_int(k), s.size);
                    if (row < 0) continue;
                    for (int64_t i = 0; i < s.inner; ++i)
                      parts[units.of(k, count) * elements + (o * s.size + row) * s.inner + i] +=
                          r.in(0).get((o * count + k) * s.inner + i);
                  }
                store_unit_sums(parts, units.count, r.out(0));
              },
          .room = room_for_unit_sums,
          .gradient =
              [](Grad& g) {
                g.set(0, g.b.emit("gather", {g.upstream(0), g.in(1)}, {{"axis", g.attributes().integer("axis")}}));
              },
          .no_gradient_inputs = {1},
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            return gather_rule(q, static_cast<int>(q.attributes().integer("axis")), true);
          },
          .localize =
              [](Attributes& attributes, const std::vector<TensorType>&, const std::vector<TensorType>& out) {
                attributes.set("size", out[0].shape[static_cast<size_t>(attributes.integer("axis"))]);
              },
          .flops = [](const OpQuery& q) { return static_cast<double>(q.in(0).elements()); },
          .samples = {"f32[4,6,4], i64[4,6](-7..7) {size=7}", "f32[4,6,2], i64[6](0..3) {axis=1,size=3}"}};
}

EPL_PARTITION(gather_grad) {
  return {.ties =
              [](Ties& t) {
                const int axis = static_cast<int>(t.q.attributes().integer("axis"));
                t.output(0, axis, t.factor(t.q.attributes().integer("size")));
              },
          .indices = 1};
}

EPL_OP(one_hot) {
  return {.doc =
              "values[1] where the new dimension at `axis`, of size `depth`, equals the index, else values[0]; an "
              "index out of "
              "[-depth, depth) matches nothing.",
          .signature = "indices, values -> y",
          .attributes = {{"axis", int64_t{-1}}, {"depth", int64_t{0}, true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_TRY(expect_shape(q, 1, {2}, "values"));
            EPL_ASSIGN(const int axis, checked_axis(q, q.attributes().integer("axis"), q.in(0).ndim() + 1));
            if (q.attributes().integer("depth") < 0) return misfit(q, "depth is negative");
            Shape shape = q.in(0).shape;
            shape.insert(shape.begin() + axis, q.attributes().integer("depth"));
            return OutputTypes{{q.in(1).dtype, shape}};
          },
          .reference =
              [](const Reference& r) {
                const int axis = r.query().axis("axis", r.out(0).type().ndim());
                const AxisSpan s = span_at(r.out(0).shape(), axis);
                for (int64_t o = 0; o < s.outer; ++o)
                  for (int64_t k = 0; k < s.size; ++k)
                    for (int64_t i = 0; i < s.inner; ++i)
                      copy_element(r.in(1), wrapped_index(r.in(0).get_int(o * s.inner + i), s.size) == k ? 1 : 0,
                                   r.out(0), (o * s.size + k) * s.inner + i);
              },
          .no_gradient = "its inputs are indices and two constants",
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            const int axis = q.axis("axis", q.out(0).ndim());
            RuleWriter rule(q);
            for (int d = 0; d < q.in(0).ndim(); ++d) {
              const int factor = rule.factor(q.in(0).shape[d]);
              rule.input(0, d, factor);
              rule.output(0, d < axis ? d : d + 1, factor);
            }
            return rule.done();
          },
          .localize =
              [](Attributes& attributes, const std::vector<TensorType>&, const std::vector<TensorType>& out) {
                const int64_t axis = attributes.integer("axis");
                attributes.set("depth", out[0].shape[static_cast<size_t>(axis < 0 ? axis + out[0].ndim() : axis)]);
              },
          .samples = {"i64[4,3](-5..5), f32[2] {depth=5}", "i64[4](0..5), i64[2] {axis=0,depth=5}",
                      "i32[4,2](0..3), f32[2] {axis=1,depth=3}"}};
}

EPL_PARTITION(one_hot) {
  return {.ties =
              [](Ties& t) {
                const int axis = t.q.axis("axis", t.q.out(0).ndim());
                t.output(0, axis, t.factor(t.q.attributes().integer("depth")));
              },
          .indices = 0};
}

EPL_OP(top_k) {
  return {
      .doc =
          "The k largest (or smallest) elements along `axis` in order, and their positions (i64); equal elements "
          "in order of position; a NaN counts as larger than every number.",
      .signature = "x -> values, indices",
      .attributes = {{"k", int64_t{0}, true}, {"axis", int64_t{-1}}, {"largest", true}},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        EPL_ASSIGN(const int axis, checked_axis(q, q.attributes().integer("axis"), q.in(0).ndim()));
        const int64_t k = q.attributes().integer("k");
        Shape shape = q.in(0).shape;
        if (k < 0 || k > shape[axis])
          return misfit(q, "k = ", k, " exceeds dimension ", axis, " of size ", shape[axis]);
        shape[axis] = k;
        return OutputTypes{{q.in(0).dtype, shape}, {DType::i64, shape}};
      },
      .reference =
          [](const Reference& r) {
            const AxisSpan s = span_at(r.in(0).shape(), r.query().axis("axis", r.in(0).type().ndim()));
            const int64_t k = r.attributes().integer("k");
            const bool largest = r.attributes().flag("largest");
            const std::span<int64_t> order = r.room<int64_t>(s.size);
            const auto below = [&x = r.in(0)](int64_t a, int64_t b) {
              return std::isnan(x.get(b)) ? !std::isnan(x.get(a)) : less(x, a, b);
            };
            for (int64_t slice = 0; slice < s.outer * s.inner; ++slice) {
              const auto at = [&](int64_t i) { return (slice / s.inner * s.size + i) * s.inner + slice % s.inner; };
              for (int64_t i = 0; i < s.size; ++i) order[i] = i;
              std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
                const bool up = below(at(a), at(b)), down = below(at(b), at(a));
                return up || down ? largest == down : a < b;
              });
              for (int64_t i = 0; i < k; ++i) {
                const int64_t to = (slice / s.inner * k + i) * s.inner + slice % s.inner;
                copy_element(r.in(0), at(order[i]), r.out(0), to);
                r.out(1).set_int(to, order[i]);
              }
            }
          },
      .room = [](const OpQuery& q,
                 Units) { return Room::bytes<int64_t>(span_at(q.in(0).shape, q.axis("axis", q.in(0).ndim())).size); },
      .gradient =
          [](Grad& g) {
            const int64_t axis = g.axis("axis", g.in(0).ndim());
            g.set(0, g.b.emit("gather_elements_grad", {g.upstream(0), saved_output(g, 1)},
                              {{"axis", axis}, {"shape", g.in(0).shape()}}));
          },
      .sharding_of = unshardable_axis_rule,
      .samples = {"f32[4,7] {k=3}", "f32[6,4] {k=2,axis=0,largest=false}", "f32[2,5,4] {k=5,axis=1}"}};
}

}  // namespace epl
