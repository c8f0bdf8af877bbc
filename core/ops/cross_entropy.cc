// Softmax cross-entropy with integer targets, as the SUM over the positions that count; the mean over the global batch
// divides by count_valid (counted_mean). Both sum over the batch and therefore honour units.
#include <cmath>
#include <limits>

#include "core/ir/index_range.h"
#include "core/ir/partition_rule.h"
#include "core/ops/common.h"

namespace epl {
using namespace ops;

namespace {
// Below it a gradient moves nothing, but products with it are subnormal, which takes a processor a hundred times as
// long.
constexpr double least_probability = 0x1p-96;

DType loss_dtype(DType logits) { return logits == DType::f64 ? DType::f64 : DType::f32; }

Result<Shape> position_shape(const OpQuery& q) {
  if (!is_float(q.in(0).dtype)) return misfit(q, "logits must be floating-point");
  if (!is_integer(q.in(1).dtype)) return misfit(q, "targets must be integers");
  EPL_ASSIGN(const int axis, checked_axis(q, q.attributes().integer("axis"), q.in(0).ndim()));
  Shape shape = q.in(0).shape;
  shape.erase(shape.begin() + axis);
  EPL_TRY(expect_shape(q, 1, shape, "target"));
  return shape;
}

// The logits of one position.
struct Classes {
  const TensorView& logits;
  AxisSpan span;
  int64_t index(int64_t position, int64_t k) const {
    return (position / span.inner * span.size + k) * span.inner + position % span.inner;
  }
  double at(int64_t position, int64_t k) const { return logits.get(index(position, k)); }
  double log_sum_exp(int64_t position) const {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t k = 0; k < span.size; ++k) largest = std::max(largest, at(position, k));
    for (int64_t k = 0; k < span.size; ++k) sum += std::exp(at(position, k) - largest);
    return largest + std::log(sum);
  }
};
Classes classes_of(const Reference& r) {
  return {r.in(0), span_at(r.in(0).shape(), r.query().axis("axis", r.in(0).type().ndim()))};
}

// Positions correspond; classes are unshardable. An operand without the positions sums over them.
Result<ShardingRule> cross_entropy_rule(const OpQuery& q) {
  const int ndim = q.in(0).ndim(), axis = q.axis("axis", ndim);
  RuleWriter rule(q);
  for (int d = 0; d < ndim; ++d) {
    if (d == axis) continue;
    const int factor = rule.factor(q.in(0).shape[d]), position = d - (d > axis);
    rule.input(0, d, factor);
    for (int i = 1; i < q.inputs(); ++i)
      if (q.has(i) && q.in(i).ndim() == ndim - 1 && ndim > 1) rule.input(i, position, factor);
    for (int i = 0; i < q.outputs(); ++i) {
      if (!q.has_output(i)) continue;
      if (q.out(i).ndim() == ndim) rule.output(i, d, factor);
      if (q.out(i).ndim() == ndim - 1 && ndim > 1 && q.out(i).ndim() > 0 && i > 0) rule.output(i, position, factor);
    }
  }
  return rule.done();
}

// Cut along the classes, which ranks with many of them share out.
PartitionRule along_classes(void (*body)(Body&)) {
  return {.ties =
              [](Ties& t) {
                const int axis = t.q.axis("axis", t.q.in(0).ndim());
                const int factor = t.factor(t.q.in(0).shape[static_cast<size_t>(axis)]);
                t.input(0, axis, factor);
                if (t.q.out(0).ndim() == t.q.in(0).ndim()) t.output(0, axis, factor);
              },
          .body = body};
}

// Targets beside the logits, with a dimension of one where these have the classes: which count, which are classes, and
// an index that no class has for the others.
struct Targets {
  Var count, known, index;
};
Targets targets_of(Body& body, const Var& logits, int axis) {
  Builder& b = body.b;
  Shape shape = logits.shape();
  const int64_t classes = shape[static_cast<size_t>(axis)];
  shape[static_cast<size_t>(axis)] = 1;
  const Var target = b.reshape(body.in(1), shape);
  const Var count =
      b.emit("not_equal", {target, b.like(target, static_cast<double>(body.attributes().integer("ignore_index")))});
  const Var known = b.emit("logical_and", {target >= 0.0, target < static_cast<double>(classes)});
  return {count, known, b.select(known, target, b.like(target, static_cast<double>(classes)))};
}

void cross_entropy_body(Body& body) {
  Builder& b = body.b;
  const int axis = body.axis("axis", body.in(0).ndim());
  const Var x = b.cast(body.in(0), loss_dtype(body.in(0).dtype()));
  const Targets targets = targets_of(body, x, axis);
  const Var largest = b.max_along(x, {axis});
  const Var lse = largest + b.log(b.sum(b.exp(x - largest), {axis}));
  const Var logit = b.emit("gather_elements", {x, targets.index}, {{"axis", static_cast<int64_t>(axis)}});
  const Var terms = b.select(targets.count, lse - logit, b.like(x, 0));
  Ints all;
  for (int d = 0; d < x.ndim(); ++d) all.push_back(d);
  body.set(0, b.sum(terms, all, false));
  body.set(1, b.reshape(lse, body.in(1).shape()));
}

void cross_entropy_grad_body(Body& body) {
  Builder& b = body.b;
  const Var x = body.in(0);
  const int axis = body.axis("axis", x.ndim());
  const Targets targets = targets_of(body, x, axis);
  Shape positions = body.in(1).shape();
  const Var index = b.reshape(targets.index, positions);
  Tensor values({x.dtype(), {2}});
  values.set(1, 1);
  const Var one_hot =
      b.emit("one_hot", {index, b.constant(values)}, {{"axis", static_cast<int64_t>(axis)}, {"depth", x.dim(axis)}});
  const Var lse = b.reshape(body.in(3), targets.count.shape());
  const Var all = b.exp(x - b.cast(lse, x.dtype()));
  const Var p = b.select(all < least_probability, b.like(x, 0), all);
  const Var d = b.select(targets.known, (p - one_hot) * b.cast(body.in(2), x.dtype()),
                         b.like(x, std::numeric_limits<double>::quiet_NaN()));
  body.set(0, b.select(targets.count, d, b.like(x, 0)));
}
}  // namespace

EPL_OP(cross_entropy) {
  return {
      .doc =
          "loss_sum = the sum over positions of lse - logit of the target class, where the target is not "
          "`ignore_index`; "
          "logits[a..., classes, b...] with classes at `axis`, target[a..., b...] -> loss_sum (f32[], f64[] for f64), "
          "lse[a..., b...] = log(sum(exp(logits))). A target that is not a class gives NaN.",
      .signature = "logits, target -> loss_sum, lse",
      .attributes = {{"axis", int64_t{-1}}, {"ignore_index", int64_t{-100}}},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        EPL_ASSIGN(Shape positions, position_shape(q));
        const DType type = loss_dtype(q.in(0).dtype);
        return OutputTypes{{type, {}}, {type, positions}};
      },
      .reference =
          [](const Reference& r) {
            const Classes classes = classes_of(r);
            const int64_t n = r.in(1).elements(), ignore = r.attributes().integer("ignore_index");
            const auto term = [&](int64_t i) {
              const double lse = classes.log_sum_exp(i);
              if (r.has_output(1)) r.out(1).set(i, lse);
              const int64_t target = r.in(1).get_int(i);
              if (target == ignore) return 0.0;
              if (target < 0 || target >= classes.span.size) return std::numeric_limits<double>::quiet_NaN();
              return lse - classes.at(i, target);
            };
            r.out(0).set(0, unit_sum(n, r.units(), r.out(0).dtype(), term));
          },
      .gradient =
          [](Grad& g) {
            if (g.upstream(1)) {
              g.b.fail(unsupported("cross_entropy: no gradient through the output lse"));
              return;
            }
            g.set(0, g.b.emit("cross_entropy_grad", {g.in(0), g.in(1), g.upstream(0), saved_output(g, 1)},
                              g.attributes()));
          },
      .no_gradient_inputs = {1},
      .sharding_of = cross_entropy_rule,
      .flops = [](const OpQuery& q) { return 6.0 * static_cast<double>(q.in(0).elements()); },
      .samples = {"f32[4,7], i64[4](0..7)", "f32[4,3,5], i32[4,3](-1..5) {ignore_index=-1}",
                  "f32[4,5,3], i64[4,3](0..5) {axis=1}", "f32[5], i64[](0..5)"}};
}

EPL_INDICES(cross_entropy) {
  const int64_t classes = q.in(0).shape[static_cast<size_t>(q.axis("axis", q.in(0).ndim()))];
  return {.input = 1,
          .low = 0,
          .high = classes,
          .ignored = q.attributes().integer("ignore_index"),
          .what = cat("class of ", classes)};
}

EPL_PARTITION(cross_entropy) { return along_classes(cross_entropy_body); }

EPL_OP(cross_entropy_grad) {
  return {
      .doc =
          "Gradient of cross_entropy's logits: (softmax(logits) - one-hot(target)) * scale, 0 where the target is "
          "`ignore_index`, NaN where it is not a class; scale is the gradient of loss_sum. A probability below 2^-96 "
          "counts as 0.",
      .signature = "logits, target, scale, lse -> dlogits",
      .attributes = {{"axis", int64_t{-1}}, {"ignore_index", int64_t{-100}}},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        EPL_ASSIGN(Shape positions, position_shape(q));
        EPL_TRY(expect_shape(q, 2, {}, "scale"));
        EPL_TRY(expect_shape(q, 3, positions, "lse"));
        return same_as_first(q);
      },
      .reference =
          [](const Reference& r) {
            const Classes classes = classes_of(r);
            const double scale = r.in(2).get(0);
            for (int64_t i = 0; i < r.in(1).elements(); ++i) {
              const int64_t target = r.in(1).get_int(i);
              const bool counts = target != r.attributes().integer("ignore_index");
              const bool known = target >= 0 && target < classes.span.size;
              for (int64_t k = 0; k < classes.span.size; ++k) {
                const double likely = std::exp(classes.at(i, k) - r.in(3).get(i));
                const double p = likely < least_probability ? 0 : likely;
                const double d =
                    known ? (p - (k == target ? 1.0 : 0.0)) * scale : std::numeric_limits<double>::quiet_NaN();
                r.out(0).set(classes.index(i, k), counts ? d : 0.0);
              }
            }
          },
      .no_gradient = "a gradient of a gradient is not built",
      .no_gradient_inputs = {1},
      .sharding_of = cross_entropy_rule,
      .flops = [](const OpQuery& q) { return 4.0 * static_cast<double>(q.in(0).elements()); },
      .written_over = 0,
      .samples = {"f32[4,7], i64[4](0..7), f32[](0.5..1), f32[4](2..3)",
                  "f32[4,5,3], i64[4,3](-1..5), f32[](0.5..1), f32[4,3](2..3) {axis=1,ignore_index=-1}"}};
}

EPL_PARTITION(cross_entropy_grad) { return along_classes(cross_entropy_grad_body); }

EPL_OP(counted_mean) {
  return {.doc =
              "y = total / count: the mean of what counts. Where count is 0 nothing counts: y is NaN, and no gradient "
              "flows back.",
          .signature = "total, count -> y",
          .scalar = [](ScalarExpr& s) { s.outputs = {s.emit(ScalarOp::div, s.input(0), s.input(1))}; },
          .gradient =
              [](Grad& g) {
                const Var count = g.in(1), zero = g.b.like(count, 0), nothing = g.b.equal(count, zero);
                const Var slope = g.upstream(0) / count;
                g.set(0, g.b.select(nothing, zero, slope));
                if (g.needs(1)) g.set(1, g.b.select(nothing, zero, -(slope * g.out(0))));
              },
          .counts = 1,
          .samples = {"f32[], f32[](0.5..3)", "f64[4], f64[4](0.5..3)", "f32[3], f32[](0.5..3)"}};
}

EPL_OP(count_valid) {
  return {.doc = "How many targets are not `ignore_index`, as f32[].",
          .signature = "target -> count",
          .attributes = {{"ignore_index", int64_t{-100}}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            if (!is_integer(q.in(0).dtype)) return misfit(q, "targets must be integers");
            return OutputTypes{{DType::f32, {}}};
          },
          .reference =
              [](const Reference& r) {
                const int64_t ignore = r.attributes().integer("ignore_index");
                r.out(0).set(0, unit_sum(r.in(0).elements(), r.units(), DType::f32,
                                         [&](int64_t i) { return r.in(0).get_int(i) == ignore ? 0.0 : 1.0; }));
              },
          .no_gradient = "a count has no derivative",
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            RuleWriter rule(q);
            for (int d = 0; d < q.in(0).ndim(); ++d) rule.input(0, d, rule.factor(q.in(0).shape[d]));
            return rule.done();
          },
          .flops = [](const OpQuery& q) { return static_cast<double>(q.in(0).elements()); },
          .samples = {"i64[4](-1..3) {ignore_index=-1}", "i32[4,6](-1..3) {ignore_index=-1}", "i64[]"}};
}

}  // namespace epl
