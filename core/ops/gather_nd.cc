// Slices gathered by tuples of indices.
// Indices may be negative and then count from the end; an index out of range reads NaN (0 for integers), which the
// step's check for finite values reports, and adds nothing.
#include <algorithm>

#include "core/ops/indexing.h"

namespace epl {
using namespace ops;

namespace {
// indices [b..., i..., t] gather x[b..., (t coordinates), r...], with `batch_dims` dimensions b in common.
struct TupleShape {
  int batch = 0, tuple = 0;
  int64_t batches = 1, count = 1, span = 1, rest = 1;  // of b, of i, of the indexed dimensions, of r
};
Result<TupleShape> tuple_shape(const OpQuery& q, const Shape& x, const Shape& indices, int64_t batch_dims) {
  TupleShape s;
  if (indices.empty()) return misfit(q, "indices need a dimension");
  s.batch = static_cast<int>(batch_dims);
  s.tuple = static_cast<int>(indices.back());
  const int n = static_cast<int>(x.size()), lead = static_cast<int>(indices.size()) - 1;
  if (s.batch < 0 || s.batch > lead || s.batch + s.tuple > n || s.tuple < 1)
    return misfit(q, "tuples of ", s.tuple, " indices do not fit ", x);
  if (!std::equal(x.begin(), x.begin() + s.batch, indices.begin())) return misfit(q, "batch dimensions differ");
  s.batches = elements_before(x, s.batch);
  s.rest = elements_from(x, s.batch + s.tuple);
  for (int d = s.batch; d < s.batch + s.tuple; ++d) s.span *= x[d];
  for (int d = s.batch; d < lead; ++d) s.count *= indices[d];
  return s;
}

// [b..., i..., r...]
Shape picked_shape(const TupleShape& s, const Shape& x, const Shape& indices) {
  Shape gathered(indices.begin(), indices.end() - 1);
  gathered.insert(gathered.end(), x.begin() + s.batch + s.tuple, x.end());
  return gathered;
}

// The position within the indexed dimensions that tuple number `at` names, -1 if out of range.
int64_t tuple_position(const TupleShape& s, const Shape& x, const TensorView& indices, int64_t at) {
  int64_t position = 0;
  for (int t = 0; t < s.tuple; ++t) {
    const int64_t size = x[s.batch + t], i = wrapped_index(indices.get_int(at * s.tuple + t), size);
    if (i < 0) return -1;
    position = position * size + i;
  }
  return position;
}

// Batch dimensions and r pass; positions i pass on the gathered side and are summed over on the other.
ShardingRule tuple_rule(const OpQuery& q, const Shape& x, int batch, int x_input, int picked_input,
                        bool positions_unshardable) {
  const int lead = q.in(1).ndim() - 1, tuple = static_cast<int>(q.in(1).shape.back()), n = static_cast<int>(x.size());
  RuleWriter rule(q);
  const auto tie = [&](int input, int d, int factor) {
    input < 0 ? rule.output(0, d, factor) : rule.input(input, d, factor);
  };
  for (int d = 0; d < lead; ++d) {
    const int factor = rule.factor(q.in(1).shape[d], d >= batch && positions_unshardable);
    rule.input(1, d, factor);
    tie(picked_input, d, factor);
    if (d < batch) tie(x_input, d, factor);
    if (d < batch && x_input == 0 && picked_input == 2) rule.output(0, d, factor);
  }
  const bool scatters = x_input == 0 && picked_input == 2;  // x and the result have each dimension in common
  for (int d = batch; d < batch + tuple && scatters; ++d) {
    const int factor = rule.factor(x[d], true);
    rule.input(0, d, factor);
    rule.output(0, d, factor);
  }
  for (int d = batch + tuple; d < n; ++d) {
    const int factor = rule.factor(x[d]);
    tie(x_input, d, factor);
    tie(picked_input, lead + d - batch - tuple, factor);
    if (x_input == 0 && picked_input == 2) rule.output(0, d, factor);
  }
  return rule.done();
}
}  // namespace

EPL_OP(gather_nd) {
  return {.doc =
              "Slices of x at tuples of indices: x[b..., (t dimensions), r...], indices[b..., i..., t] -> y[b..., "
              "i..., r...].",
          .signature = "x, indices -> y",
          .attributes = {{"batch_dims", int64_t{0}}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_TRY(integer_operand(q, 1));
            EPL_ASSIGN(const TupleShape s,
                       tuple_shape(q, q.in(0).shape, q.in(1).shape, q.attributes().integer("batch_dims")));
            return OutputTypes{{q.in(0).dtype, picked_shape(s, q.in(0).shape, q.in(1).shape)}};
          },
          .reference =
              [](const Reference& r) {
                const Shape& x = r.in(0).shape();
                const TupleShape s = *tuple_shape(r.query(), x, r.in(1).shape(), r.attributes().integer("batch_dims"));
                for (int64_t at = 0; at < s.batches * s.count; ++at) {
                  const int64_t position = tuple_position(s, x, r.in(1), at);
                  for (int64_t i = 0; i < s.rest; ++i)
                    position < 0 ? store_out_of_range(r.out(0), at * s.rest + i)
                                 : copy_element(r.in(0), (at / s.count * s.span + position) * s.rest + i, r.out(0),
                                                at * s.rest + i);
                }
              },
          .gradient =
              [](Grad& g) {
                g.set(0, g.b.emit("gather_nd_grad", {g.upstream(0), g.in(1)},
                                  {{"batch_dims", g.attributes().integer("batch_dims")}, {"shape", g.in(0).shape()}}));
              },
          .no_gradient_inputs = {1},
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            return tuple_rule(q, q.in(0).shape, static_cast<int>(q.attributes().integer("batch_dims")), 0, -1, false);
          },
          .samples = {"f32[4,6,2], i64[6,2](0..4)", "f32[4,6,2], i64[4,2,1](-6..6) {batch_dims=1}",
                      "f32[5,4], i64[4,2,1](0..5)"}};
}

EPL_OP(gather_nd_grad) {
  return {.doc = "Gradient of gather_nd's x, of `shape`: every slice of dy added where it was read.",
          .signature = "dy, indices -> dx",
          .attributes = {{"batch_dims", int64_t{0}}, {"shape", Ints{}, true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            const Shape& x = q.attributes().ints("shape");
            EPL_TRY(integer_operand(q, 1));
            EPL_ASSIGN(const TupleShape s, tuple_shape(q, x, q.in(1).shape, q.attributes().integer("batch_dims")));
            EPL_TRY(expect_shape(q, 0, picked_shape(s, x, q.in(1).shape), "dy"));
            return OutputTypes{{q.in(0).dtype, x}};
          },
          .reference =
              [](const Reference& r) {
                const Shape& x = r.out(0).shape();
                const TupleShape s = *tuple_shape(r.query(), x, r.in(1).shape(), r.attributes().integer("batch_dims"));
                const Units units = r.units();
                EPL_CHECK(units.divide(s.count), s.count, " positions in ", units.count, " units");
                const int64_t elements = r.out(0).elements();
                const std::span<double> parts = r.room<double>(units.count * elements);
                for (int64_t at = 0; at < s.batches * s.count; ++at) {
                  const int64_t position = tuple_position(s, x, r.in(1), at);
                  if (position < 0) continue;
                  const std::span<double> sums = parts.subspan(units.of(at % s.count, s.count) * elements, elements);
                  for (int64_t i = 0; i < s.rest; ++i)
                    sums[(at / s.count * s.span + position) * s.rest + i] += r.in(0).get(at * s.rest + i);
                }
                store_unit_sums(parts, units.count, r.out(0));
              },
          .room = room_for_unit_sums,
          .gradient =
              [](Grad& g) {
                g.set(0, g.b.emit("gather_nd", {g.upstream(0), g.in(1)},
                                  {{"batch_dims", g.attributes().integer("batch_dims")}}));
              },
          .no_gradient_inputs = {1},
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            return tuple_rule(q, q.out(0).shape, static_cast<int>(q.attributes().integer("batch_dims")), -1, 0, false);
          },
          .localize = [](Attributes& attributes, const std::vector<TensorType>&,
                         const std::vector<TensorType>& out) { attributes.set("shape", out[0].shape); },
          .samples = {"f32[6,2], i64[6,2](0..4) {shape=[4,6,2]}",
                      "f32[4,2,2], i64[4,2,1](-6..6) {batch_dims=1,shape=[4,6,2]}"}};
}

EPL_OP(scatter_nd) {
  return {.doc =
              "x with its slices at tuples of indices[i..., t] replaced by, or combined (`reduction` add, mul, max, "
              "min) with, "
              "updates[i..., r...].",
          .signature = "x, indices, updates -> y",
          .attributes = {{"reduction", "none"}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_TRY(integer_operand(q, 1));
            EPL_TRY(check_reduction(q));
            EPL_ASSIGN(const TupleShape s, tuple_shape(q, q.in(0).shape, q.in(1).shape, 0));
            EPL_TRY(expect_shape(q, 2, picked_shape(s, q.in(0).shape, q.in(1).shape), "updates"));
            if (q.in(2).dtype != q.in(0).dtype) return misfit(q, "element types of x and updates differ");
            return same_as_first(q);
          },
          .reference =
              [](const Reference& r) {
                const Shape& x = r.in(0).shape();
                const TupleShape s = *tuple_shape(r.query(), x, r.in(1).shape(), 0);
                const std::string& reduction = r.attributes().text("reduction");
                for (int64_t i = 0; i < r.in(0).elements(); ++i) copy_element(r.in(0), i, r.out(0), i);
                for (int64_t at = 0; at < s.count; ++at) {
                  const int64_t position = tuple_position(s, x, r.in(1), at);
                  if (position < 0) continue;
                  for (int64_t i = 0; i < s.rest; ++i)
                    combine(reduction, r.out(0), position * s.rest + i, r.in(2), at * s.rest + i);
                }
              },
          .gradient =
              [](Grad& g) {
                if (!linear_reduction(g)) return;
                const Var dy = g.upstream(0);
                const bool adds = g.attributes().text("reduction") == "add";
                if (g.needs(0)) g.set(0, adds ? dy : g.b.emit("scatter_nd", {dy, g.in(1), zeros_like(g.b, g.in(2))}));
                if (g.needs(2)) g.set(2, g.b.emit("gather_nd", {dy, g.in(1)}));
              },
          .no_gradient_inputs = {1},
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            return tuple_rule(q, q.in(0).shape, 0, 0, 2, true);
          },
          .samples = {"f32[8,4], i64[1,1](0..8), f32[1,4]", "f32[4,6,2], i64[5,2](0..4), f32[5,2] {reduction=\"add\"}",
                      "f32[8], i64[4,1](0..8), f32[4] {reduction=\"add\"}"}};
}

}  // namespace epl
