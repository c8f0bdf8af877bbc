// Picking elements by integer indices along one axis, and the adjoints that add duplicates in canonical order.
// Indices may be negative and then count from the end; an index out of range reads NaN (0 for integers), which the
// step's check for finite values reports, and adds nothing.
#include <algorithm>

#include "core/ops/common.h"

namespace epl {
using namespace ops;

namespace {
Status integer_operand(const OpQuery& q, int i) {
  if (!is_integer(q.in(i).dtype)) return misfit(q, "indices must be integers");
  return {};
}

// x [pre..., axis, post...] with indices [i...] -> [pre..., i..., post...]. The adjoint has the same correspondence.
ShardingRule gather_rule(const OpQuery& q, int axis, bool adjoint) {
  const Shape& full = adjoint ? q.out(0).shape : q.in(0).shape;
  const Shape& picked = adjoint ? q.in(0).shape : q.out(0).shape;
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
  (void)picked;
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
                      row < 0 ? store_out_of_range(r.out(0), to) : copy_element(r.in(0), (o * s.size + row) * s.inner + i, r.out(0), to);
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
          .samples = {"f32[7,4], i64[4,6](-7..7)", "f32[4,7,2], i64[6](0..7) {axis=1}", "f32[4,7], i32[](0..7) {axis=-1}",
                      "i64[5], i64[4](0..5)"}};
}

EPL_OP(gather_grad) {
  return {.doc = "Gradient of gather's x, with `size` along `axis`: dy[a..., i..., b...], indices[i...] -> dx[a..., size, b...]; "
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
                const int64_t count = r.in(1).elements(), run = count / r.units();
                EPL_CHECK(count % r.units() == 0, count, " indices in ", r.units(), " units");
                std::vector<std::vector<double>> parts(r.units(), std::vector<double>(r.out(0).elements(), 0.0));
                for (int64_t o = 0; o < s.outer; ++o)
                  for (int64_t k = 0; k < count; ++k) {
                    const int64_t row = wrapped_index(r.in(1).get_int(k), s.size);
                    if (row < 0) continue;
                    for (int64_t i = 0; i < s.inner; ++i)
                      parts[k / run][(o * s.size + row) * s.inner + i] += r.in(0).get((o * count + k) * s.inner + i);
                  }
                store_unit_sums(parts, r.out(0));
              },
          .gradient =
              [](Grad& g) { g.set(0, g.b.emit("gather", {g.upstream(0), g.in(1)}, {{"axis", g.attributes().integer("axis")}})); },
          .no_gradient_inputs = {1},
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            return gather_rule(q, static_cast<int>(q.attributes().integer("axis")), true);
          },
          .flops = [](const OpQuery& q) { return static_cast<double>(q.in(0).elements()); },
          .samples = {"f32[4,6,4], i64[4,6](-7..7) {size=7}", "f32[4,6,2], i64[6](0..3) {axis=1,size=3}"}};
}

// --- one index per element ---

namespace {
Status check_elementwise_indices(const OpQuery& q, const Shape& x, const Shape& indices, int axis) {
  if (x.size() != indices.size()) return misfit(q, "indices need as many dimensions as the data");
  for (size_t d = 0; d < x.size(); ++d)
    if (static_cast<int>(d) != axis && indices[d] > x[d]) return misfit(q, "indices exceed dimension ", d);
  return {};
}

// The element of `shape` that `index` names with its coordinate along `axis` replaced by `at`.
int64_t replaced_index(const Shape& shape, const Ints& index, int axis, int64_t at) {
  int64_t linear = 0;
  for (size_t d = 0; d < shape.size(); ++d) linear = linear * shape[d] + (static_cast<int>(d) == axis ? at : index[d]);
  return linear;
}

// Dimensions other than the axis pass where data and indices have the same size there.
Result<ShardingRule> element_rule(const OpQuery& q, const Shape& x, const Shape& indices, int64_t axis) {
  std::vector<bool> whole(x.size());
  for (size_t d = 0; d < x.size(); ++d) whole[d] = x[d] != indices[d];
  whole[axis < 0 ? axis + static_cast<int64_t>(x.size()) : axis] = true;
  return aligned_rule(q, whole);
}

double combine(const std::string& reduction, double old, double update) {
  if (reduction == "add") return old + update;
  if (reduction == "mul") return old * update;
  if (reduction == "max") return evaluate_scalar(ScalarOp::max, old, update, 0.0);
  if (reduction == "min") return evaluate_scalar(ScalarOp::min, old, update, 0.0);
  return update;
}
Status check_reduction(const OpQuery& q) {
  const std::string& reduction = q.attributes().text("reduction");
  for (const char* known : {"none", "add", "mul", "max", "min"})
    if (reduction == known) return {};
  return misfit(q, "reduction \"", reduction, "\" is not one of none, add, mul, max, min");
}
// Only overwriting and adding have gradients; says so otherwise.
bool linear_reduction(Grad& g) {
  const std::string& reduction = g.attributes().text("reduction");
  if (reduction == "none" || reduction == "add") return true;
  g.b.fail(unsupported(g.node().op->name, " with reduction \"", reduction, "\" has no gradient"));
  return false;
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
                for_each_index(r.in(1).shape(), [&](int64_t o, const Ints& index) {
                  const int64_t at = wrapped_index(r.in(1).get_int(o), x[axis]);
                  at < 0 ? store_out_of_range(r.out(0), o) : copy_element(r.in(0), replaced_index(x, index, axis, at), r.out(0), o);
                });
              },
          .gradient =
              [](Grad& g) {
                const int64_t axis = g.axis("axis", g.in(0).ndim());
                g.set(0, g.b.emit("gather_elements_grad", {g.upstream(0), g.in(1)}, {{"axis", axis}, {"shape", g.in(0).shape()}}));
              },
          .no_gradient_inputs = {1},
          .sharding_of = [](const OpQuery& q) {
            return element_rule(q, q.in(0).shape, q.in(1).shape, q.attributes().integer("axis"));
          },
          .samples = {"f32[4,7], i64[4,3](-7..7) {axis=1}", "f32[5,4], i32[3,4](0..5) {axis=0}", "f32[4,5,2], i64[4,2,1](0..5) {axis=1}"}};
}

EPL_OP(gather_elements_grad) {
  return {.doc = "Gradient of gather_elements' x, of `shape`: every element of dy added where it was read.",
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
                std::vector<double> sums(r.out(0).elements(), 0.0);
                for_each_index(r.in(1).shape(), [&](int64_t i, const Ints& index) {
                  const int64_t at = wrapped_index(r.in(1).get_int(i), x[axis]);
                  if (at >= 0) sums[replaced_index(x, index, axis, at)] += r.in(0).get(i);
                });
                for (int64_t i = 0; i < r.out(0).elements(); ++i) r.out(0).set(i, sums[i]);
              },
          .gradient =
              [](Grad& g) {
                g.set(0, g.b.emit("gather_elements", {g.upstream(0), g.in(1)}, {{"axis", g.attributes().integer("axis")}}));
              },
          .no_gradient_inputs = {1},
          .sharding_of = [](const OpQuery& q) {
            return element_rule(q, q.out(0).shape, q.in(1).shape, q.attributes().integer("axis"));
          },
          .localize = [](Attributes& attributes, const std::vector<TensorType>&,
                         const std::vector<TensorType>& out) { attributes.set("shape", out[0].shape); },
          .samples = {"f32[4,3], i64[4,3](-7..7) {axis=1,shape=[4,7]}", "f32[3,4], i32[3,4](0..2) {axis=0,shape=[5,4]}"}};
}

EPL_OP(scatter_elements) {
  return {.doc = "x with x[..., indices[..., i, ...], ...] replaced by, or combined (`reduction` add, mul, max, min) with, "
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
                for_each_index(r.in(1).shape(), [&](int64_t i, const Ints& index) {
                  const int64_t at = wrapped_index(r.in(1).get_int(i), x[axis]);
                  if (at < 0) return;
                  const int64_t to = replaced_index(x, index, axis, at);
                  reduction == "none" ? copy_element(r.in(2), i, r.out(0), to)
                                      : r.out(0).set(to, combine(reduction, r.out(0).get(to), r.in(2).get(i)));
                });
              },
          .gradient =
              [](Grad& g) {
                if (!linear_reduction(g)) return;
                const Var dy = g.upstream(0);
                const Attributes axis = {{"axis", g.attributes().integer("axis")}};
                if (g.needs(0)) {
                  const bool adds = g.attributes().text("reduction") == "add";
                  g.set(0, adds ? dy : g.b.emit("scatter_elements", {dy, g.in(1), g.in(2) * 0.0}, axis));
                }
                if (g.needs(2)) g.set(2, g.b.emit("gather_elements", {dy, g.in(1)}, axis));
              },
          .no_gradient_inputs = {1},
          .sharding_of = [](const OpQuery& q) {
            return element_rule(q, q.in(0).shape, q.in(1).shape, q.attributes().integer("axis"));
          },
          .samples = {"f32[4,7], i64[4,1](-7..7), f32[4,1] {axis=1}", "f32[4,7], i64[4,3](0..7), f32[4,3] {axis=1,reduction=\"add\"}",
                      "f32[5,4], i32[1,4](0..5), f32[1,4] {axis=0}"}};
}

// --- tuples of indices ---

namespace {
// indices [b..., i..., t] pick x[b..., (t coordinates), r...], with `batch_dims` dimensions b in common.
struct TupleShape {
  int batch = 0, tuple = 0;
  int64_t batches = 1, count = 1, span = 1, rest = 1;  // of b, of i, of the indexed dimensions, of r
  Shape picked;                                         // [b..., i..., r...]
};
Result<TupleShape> tuple_shape(const OpQuery& q, const Shape& x, const Shape& indices, int64_t batch_dims) {
  TupleShape s;
  if (indices.empty()) return misfit(q, "indices need a dimension");
  s.batch = static_cast<int>(batch_dims);
  s.tuple = static_cast<int>(indices.back());
  const int n = static_cast<int>(x.size()), lead = static_cast<int>(indices.size()) - 1;
  if (s.batch < 0 || s.batch > lead || s.batch + s.tuple > n || s.tuple < 1) return misfit(q, "tuples of ", s.tuple, " indices do not fit ", x);
  if (!std::equal(x.begin(), x.begin() + s.batch, indices.begin())) return misfit(q, "batch dimensions differ");
  s.picked.assign(indices.begin(), indices.end() - 1);
  s.picked.insert(s.picked.end(), x.begin() + s.batch + s.tuple, x.end());
  s.batches = elements_before(x, s.batch);
  s.rest = elements_from(x, s.batch + s.tuple);
  for (int d = s.batch; d < s.batch + s.tuple; ++d) s.span *= x[d];
  for (int d = s.batch; d < lead; ++d) s.count *= indices[d];
  return s;
}

// The place within the indexed dimensions that tuple number `at` names, -1 if out of range.
int64_t tuple_place(const TupleShape& s, const Shape& x, const Tensor& indices, int64_t at) {
  int64_t place = 0;
  for (int t = 0; t < s.tuple; ++t) {
    const int64_t size = x[s.batch + t], i = wrapped_index(indices.get_int(at * s.tuple + t), size);
    if (i < 0) return -1;
    place = place * size + i;
  }
  return place;
}

// Batch dimensions and r pass; positions i pass on the picked side and are summed over on the other.
ShardingRule tuple_rule(const OpQuery& q, const Shape& x, int batch, int x_input, int picked_input, bool positions_whole) {
  const int lead = q.in(1).ndim() - 1, tuple = static_cast<int>(q.in(1).shape.back()), n = static_cast<int>(x.size());
  RuleWriter rule(q);
  const auto tie = [&](int input, int d, int factor) { input < 0 ? rule.output(0, d, factor) : rule.input(input, d, factor); };
  for (int d = 0; d < lead; ++d) {
    const int factor = rule.factor(q.in(1).shape[d], d >= batch && positions_whole);
    rule.input(1, d, factor);
    tie(picked_input, d, factor);
    if (d < batch) tie(x_input, d, factor);
    if (d < batch && x_input == 0 && picked_input == 2) rule.output(0, d, factor);
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
  return {.doc = "Slices of x at tuples of indices: x[b..., (t dimensions), r...], indices[b..., i..., t] -> y[b..., i..., r...].",
          .signature = "x, indices -> y",
          .attributes = {{"batch_dims", int64_t{0}}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_TRY(integer_operand(q, 1));
            EPL_ASSIGN(const TupleShape s, tuple_shape(q, q.in(0).shape, q.in(1).shape, q.attributes().integer("batch_dims")));
            return OutputTypes{{q.in(0).dtype, s.picked}};
          },
          .reference =
              [](const Reference& r) {
                const Shape& x = r.in(0).shape();
                const TupleShape s = *tuple_shape(r.query(), x, r.in(1).shape(), r.attributes().integer("batch_dims"));
                for (int64_t at = 0; at < s.batches * s.count; ++at) {
                  const int64_t place = tuple_place(s, x, r.in(1), at);
                  for (int64_t i = 0; i < s.rest; ++i)
                    place < 0 ? store_out_of_range(r.out(0), at * s.rest + i)
                              : copy_element(r.in(0), (at / s.count * s.span + place) * s.rest + i, r.out(0), at * s.rest + i);
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
          .samples = {"f32[4,6,2], i64[6,2](0..4)", "f32[4,6,2], i64[4,2,1](-6..6) {batch_dims=1}", "f32[5,4], i64[4,2,1](0..5)"}};
}

EPL_OP(gather_nd_grad) {
  return {.doc = "Gradient of gather_nd's x, of `shape`: every slice of dy added where it was read.",
          .signature = "dy, indices -> dx",
          .attributes = {{"batch_dims", int64_t{0}}, {"shape", Ints{}, true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            const Shape& x = q.attributes().ints("shape");
            EPL_TRY(integer_operand(q, 1));
            EPL_ASSIGN(const TupleShape s, tuple_shape(q, x, q.in(1).shape, q.attributes().integer("batch_dims")));
            EPL_TRY(expect_shape(q, 0, s.picked, "dy"));
            return OutputTypes{{q.in(0).dtype, x}};
          },
          .reference =
              [](const Reference& r) {
                const Shape& x = r.out(0).shape();
                const TupleShape s = *tuple_shape(r.query(), x, r.in(1).shape(), r.attributes().integer("batch_dims"));
                EPL_CHECK(s.count % r.units() == 0, s.count, " positions in ", r.units(), " units");
                std::vector<std::vector<double>> parts(r.units(), std::vector<double>(r.out(0).elements(), 0.0));
                for (int64_t at = 0; at < s.batches * s.count; ++at) {
                  const int64_t place = tuple_place(s, x, r.in(1), at);
                  if (place < 0) continue;
                  std::vector<double>& sums = parts[at % s.count / (s.count / r.units())];
                  for (int64_t i = 0; i < s.rest; ++i) sums[(at / s.count * s.span + place) * s.rest + i] += r.in(0).get(at * s.rest + i);
                }
                store_unit_sums(parts, r.out(0));
              },
          .gradient =
              [](Grad& g) {
                g.set(0, g.b.emit("gather_nd", {g.upstream(0), g.in(1)}, {{"batch_dims", g.attributes().integer("batch_dims")}}));
              },
          .no_gradient_inputs = {1},
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            return tuple_rule(q, q.out(0).shape, static_cast<int>(q.attributes().integer("batch_dims")), -1, 0, false);
          },
          .localize = [](Attributes& attributes, const std::vector<TensorType>&,
                         const std::vector<TensorType>& out) { attributes.set("shape", out[0].shape); },
          .samples = {"f32[6,2], i64[6,2](0..4) {shape=[4,6,2]}", "f32[4,2,2], i64[4,2,1](-6..6) {batch_dims=1,shape=[4,6,2]}"}};
}

EPL_OP(scatter_nd) {
  return {.doc = "x with its slices at tuples of indices[i..., t] replaced by, or combined (`reduction` add, mul, max, min) with, "
                 "updates[i..., r...].",
          .signature = "x, indices, updates -> y",
          .attributes = {{"reduction", "none"}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_TRY(integer_operand(q, 1));
            EPL_TRY(check_reduction(q));
            EPL_ASSIGN(const TupleShape s, tuple_shape(q, q.in(0).shape, q.in(1).shape, 0));
            EPL_TRY(expect_shape(q, 2, s.picked, "updates"));
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
                  const int64_t place = tuple_place(s, x, r.in(1), at);
                  if (place < 0) continue;
                  for (int64_t i = 0; i < s.rest; ++i) {
                    const int64_t from = at * s.rest + i, to = place * s.rest + i;
                    reduction == "none" ? copy_element(r.in(2), from, r.out(0), to)
                                        : r.out(0).set(to, combine(reduction, r.out(0).get(to), r.in(2).get(from)));
                  }
                }
              },
          .gradient =
              [](Grad& g) {
                if (!linear_reduction(g)) return;
                const Var dy = g.upstream(0);
                const bool adds = g.attributes().text("reduction") == "add";
                if (g.needs(0)) g.set(0, adds ? dy : g.b.emit("scatter_nd", {dy, g.in(1), g.in(2) * 0.0}));
                if (g.needs(2)) g.set(2, g.b.emit("gather_nd", {dy, g.in(1)}));
              },
          .no_gradient_inputs = {1},
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> { return tuple_rule(q, q.in(0).shape, 0, 0, 2, true); },
          .samples = {"f32[8,4], i64[1,1](0..8), f32[1,4]", "f32[4,6,2], i64[5,2](0..4), f32[5,2] {reduction=\"add\"}",
                      "f32[8], i64[4,1](0..8), f32[4] {reduction=\"add\"}"}};
}

// --- one-hot and largest elements ---

EPL_OP(one_hot) {
  return {.doc = "values[1] where the new dimension at `axis`, of size `depth`, equals the index, else values[0]; an index out of "
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
                      copy_element(r.in(1), wrapped_index(r.in(0).get_int(o * s.inner + i), s.size) == k ? 1 : 0, r.out(0),
                                   (o * s.size + k) * s.inner + i);
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
          .samples = {"i64[4,3](-5..5), f32[2] {depth=5}", "i64[4](0..5), i64[2] {axis=0,depth=5}", "i32[4,2](0..3), f32[2] {axis=1,depth=3}"}};
}

EPL_OP(top_k) {
  return {.doc = "The k largest (or smallest) elements along `axis` in order, and their positions (i64); equal elements in order of "
                 "position.",
          .signature = "x -> values, indices",
          .attributes = {{"k", int64_t{0}, true}, {"axis", int64_t{-1}}, {"largest", true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_ASSIGN(const int axis, checked_axis(q, q.attributes().integer("axis"), q.in(0).ndim()));
            const int64_t k = q.attributes().integer("k");
            Shape shape = q.in(0).shape;
            if (k < 0 || k > shape[axis]) return misfit(q, "k = ", k, " exceeds dimension ", axis, " of size ", shape[axis]);
            shape[axis] = k;
            return OutputTypes{{q.in(0).dtype, shape}, {DType::i64, shape}};
          },
          .reference =
              [](const Reference& r) {
                const AxisSpan s = span_at(r.in(0).shape(), r.query().axis("axis", r.in(0).type().ndim()));
                const int64_t k = r.attributes().integer("k");
                const bool largest = r.attributes().flag("largest");
                for (int64_t lane = 0; lane < s.outer * s.inner; ++lane) {
                  const auto at = [&](int64_t i) { return (lane / s.inner * s.size + i) * s.inner + lane % s.inner; };
                  Ints order(s.size);
                  for (int64_t i = 0; i < s.size; ++i) order[i] = i;
                  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
                    const double va = r.in(0).get(at(a)), vb = r.in(0).get(at(b));
                    return largest ? va > vb : va < vb;
                  });
                  for (int64_t i = 0; i < k; ++i) {
                    const int64_t to = (lane / s.inner * k + i) * s.inner + lane % s.inner;
                    copy_element(r.in(0), at(order[i]), r.out(0), to);
                    r.out(1).set_int(to, order[i]);
                  }
                }
              },
          .gradient =
              [](Grad& g) {
                const int64_t axis = g.axis("axis", g.in(0).ndim());
                g.set(0, g.b.emit("gather_elements_grad", {g.upstream(0), saved_output(g, 1)}, {{"axis", axis}, {"shape", g.in(0).shape()}}));
              },
          .sharding_of = whole_axis_rule,
          .samples = {"f32[4,7] {k=3}", "f32[6,4] {k=2,axis=0,largest=false}", "f32[2,5,4] {k=5,axis=1}"}};
}

}  // namespace epl
