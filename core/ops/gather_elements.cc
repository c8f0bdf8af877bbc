// One index for every element, along one axis.
// Indices may be negative and then count from the end; an index out of range reads NaN (0 for integers), which the
// step's check for finite values reports, and adds nothing.
#include <algorithm>

#include "core/ir/index_range.h"
#include "core/ir/partition_rule.h"
#include "core/ops/indexing.h"

namespace epl {
using namespace ops;

namespace {
Status check_elementwise_indices(const OpQuery& q, const Shape& x, const Shape& indices, int axis) {
  if (x.size() != indices.size()) return misfit(q, "indices need as many dimensions as the data");
  for (size_t d = 0; d < x.size(); ++d)
    if (static_cast<int>(d) != axis && indices[d] > x[d]) return misfit(q, "indices exceed dimension ", d);
  return {};
}

// The element of `shape` that `index` names with its coordinate along `axis` replaced by `at`.
int64_t replaced_index(const Shape& shape, const Dims& index, int axis, int64_t at) {
  int64_t linear = 0;
  for (size_t d = 0; d < shape.size(); ++d) linear = linear * shape[d] + (static_cast<int>(d) == axis ? at : index[d]);
  return linear;
}

// Dimensions other than the axis pass where data and indices have the same size there.
Result<ShardingRule> element_rule(const OpQuery& q, const Shape& x, const Shape& indices, int64_t axis) {
  std::vector<bool> unshardable(x.size());
  for (size_t d = 0; d < x.size(); ++d) unshardable[d] = x[d] != indices[d];
  unshardable[axis < 0 ? axis + static_cast<int64_t>(x.size()) : axis] = true;
  return aligned_rule(q, unshardable);
}
// The same, where x and the result have each dimension in common, cut or not.
ShardingRule scatter_rule(const OpQuery& q) {
  const Shape &x = q.in(0).shape, &indices = q.in(1).shape;
  const int axis = q.axis("axis", q.in(0).ndim());
  RuleWriter rule(q);
  for (int d = 0; d < q.in(0).ndim(); ++d) {
    const auto at = static_cast<size_t>(d);
    const bool passes = d != axis && x[at] == indices[at];
    const int factor = rule.factor(x[at], !passes);
    rule.input(0, d, factor);
    for (int i = 1; i < q.inputs() && passes; ++i) rule.input(i, d, factor);
    rule.output(0, d, factor);
  }
  return rule.done();
}
}  // namespace

EPL_OP(gather_elements) {
  return {.doc = "y[..., i, ...] = x[..., indices[..., i, ...], ...] along `axis`; y has the shape of the indices.",
          .signature = "x, indices -> y",
          .attributes = {{"axis", int64_t{0}}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_TRY(integer_operand(q, 1));
            EPL_ASSIGN(const int axis, checked_axis(q, q.attributes().integer("axis"), q.in(0).ndim()));
            EPL_TRY(check_elementwise_indices(q, q.in(0).shape, q.in(1).shape, axis));
            return OutputTypes{{q.in(0).dtype, q.in(1).shape}};
          },
          .reference =
              [](const Reference& r) {
                const Shape& x = r.in(0).shape();
                const int axis = r.query().axis("axis", r.in(0).type().ndim());
                for_each_index(r.in(1).shape(), [&](int64_t o, const Dims& index) {
                  const int64_t at = wrapped_index(r.in(1).get_int(o), x[axis]);
                  at < 0 ? store_out_of_range(r.out(0), o)
                         : copy_element(r.in(0), replaced_index(x, index, axis, at), r.out(0), o);
                });
              },
          .gradient =
              [](Grad& g) {
                const int64_t axis = g.axis("axis", g.in(0).ndim());
                g.set(0, g.b.emit("gather_elements_grad", {g.upstream(0), g.in(1)},
                                  {{"axis", axis}, {"shape", g.in(0).shape()}}));
              },
          .no_gradient_inputs = {1},
          .sharding_of =
              [](const OpQuery& q) {
                return element_rule(q, q.in(0).shape, q.in(1).shape, q.attributes().integer("axis"));
              },
          .samples = {"f32[4,7], i64[4,3](-7..7) {axis=1}", "f32[5,4], i32[3,4](0..5) {axis=0}",
                      "f32[4,5,2], i64[4,2,1](0..5) {axis=1}"}};
}

EPL_INDICES(gather_elements) {
  const int64_t rows = q.in(0).shape[static_cast<size_t>(q.axis("axis", q.in(0).ndim()))];
  return {.input = 1, .low = -rows, .high = rows, .what = cat("index into ", rows, " rows")};
}

EPL_PARTITION(gather_elements) {
  return {.ties =
              [](Ties& t) {
                const int axis = t.q.axis("axis", t.q.in(0).ndim());
                t.input(0, axis, t.factor(t.q.in(0).shape[static_cast<size_t>(axis)]));
              },
          .indices = 1};
}

EPL_OP(gather_elements_grad) {
  return {
      .doc = "Gradient of gather_elements' x, of `shape`: every element of dy added where it was read.",
      .signature = "dy, indices -> dx",
      .attributes = {{"axis", int64_t{0}}, {"shape", Ints{}, true}},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        const Shape& x = q.attributes().ints("shape");
        EPL_TRY(integer_operand(q, 1));
        EPL_ASSIGN(const int axis, checked_axis(q, q.attributes().integer("axis"), static_cast<int>(x.size())));
        EPL_TRY(check_elementwise_indices(q, x, q.in(1).shape, axis));
        EPL_TRY(expect_shape(q, 0, q.in(1).shape, "dy"));
        return OutputTypes{{q.in(0).dtype, x}};
      },
      .reference =
          [](const Reference& r) {
            const Shape& x = r.out(0).shape();
            const int axis = r.query().axis("axis", r.out(0).type().ndim());
            const std::span<double> sums = r.room<double>(r.out(0).elements());
            for_each_index(r.in(1).shape(), [&](int64_t i, const Dims& index) {
              const int64_t at = wrapped_index(r.in(1).get_int(i), x[axis]);
              if (at >= 0) sums[replaced_index(x, index, axis, at)] += r.in(0).get(i);
            });
            for (int64_t i = 0; i < r.out(0).elements(); ++i) r.out(0).set(i, sums[i]);
          },
      .room = room_for_sums,
      .gradient =
          [](Grad& g) {
            g.set(0, g.b.emit("gather_elements", {g.upstream(0), g.in(1)}, {{"axis", g.attributes().integer("axis")}}));
          },
      .no_gradient_inputs = {1},
      .sharding_of =
          [](const OpQuery& q) {
            return element_rule(q, q.out(0).shape, q.in(1).shape, q.attributes().integer("axis"));
          },
      .localize = [](Attributes& attributes, const std::vector<TensorType>&,
                     const std::vector<TensorType>& out) { attributes.set("shape", out[0].shape); },
      .samples = {"f32[4,3], i64[4,3](-7..7) {axis=1,shape=[4,7]}", "f32[3,4], i32[3,4](0..2) {axis=0,shape=[5,4]}"}};
}

EPL_PARTITION(gather_elements_grad) {
  return {.ties =
              [](Ties& t) {
                const int axis = t.q.axis("axis", t.q.out(0).ndim());
                t.output(0, axis, t.factor(t.q.out(0).shape[static_cast<size_t>(axis)]));
              },
          .indices = 1};
}

EPL_OP(scatter_elements) {
  return {
      .doc =
          "x with x[..., indices[..., i, ...], ...] replaced by, or combined (`reduction` add, mul, max, min) with, "
          "updates[..., i, ...] along `axis`.",
      .signature = "x, indices, updates -> y",
      .attributes = {{"axis", int64_t{0}}, {"reduction", "none"}},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        EPL_TRY(integer_operand(q, 1));
        EPL_TRY(check_reduction(q));
        EPL_ASSIGN(const int axis, checked_axis(q, q.attributes().integer("axis"), q.in(0).ndim()));
        EPL_TRY(check_elementwise_indices(q, q.in(0).shape, q.in(1).shape, axis));
        EPL_TRY(expect_shape(q, 2, q.in(1).shape, "updates"));
        if (q.in(2).dtype != q.in(0).dtype) return misfit(q, "element types of x and updates differ");
        return same_as_first(q);
      },
      .reference =
          [](const Reference& r) {
            const Shape& x = r.in(0).shape();
            const int axis = r.query().axis("axis", r.in(0).type().ndim());
            const std::string& reduction = r.attributes().text("reduction");
            for (int64_t i = 0; i < r.in(0).elements(); ++i) copy_element(r.in(0), i, r.out(0), i);
            for_each_index(r.in(1).shape(), [&](int64_t i, const Dims& index) {
              const int64_t at = wrapped_index(r.in(1).get_int(i), x[axis]);
              if (at >= 0) combine(reduction, r.out(0), replaced_index(x, index, axis, at), r.in(2), i);
            });
          },
      .gradient =
          [](Grad& g) {
            if (!linear_reduction(g)) return;
            const Var dy = g.upstream(0);
            const Attributes axis = {{"axis", g.attributes().integer("axis")}};
            if (g.needs(0)) {
              const bool adds = g.attributes().text("reduction") == "add";
              g.set(0, adds ? dy : g.b.emit("scatter_elements", {dy, g.in(1), zeros_like(g.b, g.in(2))}, axis));
            }
            if (g.needs(2)) g.set(2, g.b.emit("gather_elements", {dy, g.in(1)}, axis));
          },
      .no_gradient_inputs = {1},
      .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> { return scatter_rule(q); },
      .samples = {"f32[4,7], i64[4,1](-7..7), f32[4,1] {axis=1}",
                  "f32[4,7], i64[4,3](0..7), f32[4,3] {axis=1,reduction=\"add\"}",
                  "f32[5,4], i32[1,4](0..5), f32[1,4] {axis=0}"}};
}

}  // namespace epl
