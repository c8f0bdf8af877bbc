// Layer norm (Ba et al., 2016) and RMS norm (Zhang and Sennrich, 2019) over the dimensions from `axis` on. The forward
// ops also return the statistics that their gradients use, with the normalised dimensions kept at size one. The sums
// over rows in the gradients of scale and bias run per unit of the batch.
#include <cmath>

#include "core/ir/partition_rule.h"
#include "core/ops/common.h"

namespace epl {
using namespace ops;

namespace {
// x as rows of `width` elements each.
struct Rows {
  int axis;
  int64_t count, width;
};
Rows rows_of(const Shape& x, int64_t axis) {
  const auto from = static_cast<int>(axis < 0 ? axis + static_cast<int64_t>(x.size()) : axis);
  return {from, elements_before(x, from), elements_from(x, from)};
}
// The normalised dimensions, and the shape of mean and rstd.
Shape inner_of(const Shape& x, const Rows& r) { return Shape(x.begin() + r.axis, x.end()); }
Shape statistics_of(Shape x, const Rows& r) {
  for (size_t d = r.axis; d < x.size(); ++d) x[d] = 1;
  return x;
}
Ints axes_from(int axis, int ndim) {
  Ints axes;
  for (int d = axis; d < ndim; ++d) axes.push_back(d);
  return axes;
}

// Checks x at input `at`, scale and bias at the inputs given (or absent), statistics where they are inputs.
Result<Rows> check_norm(const OpQuery& q, int at, std::initializer_list<int> parameters,
                        std::initializer_list<int> statistics) {
  EPL_TRY(same_dtypes(q, true));
  const TensorType& x = q.in(at);
  EPL_TRY(checked_axis(q, q.attributes().integer("axis"), x.ndim()).status());
  const Rows r = rows_of(x.shape, q.attributes().integer("axis"));
  for (int i : parameters) EPL_TRY(expect_shape(q, i, inner_of(x.shape, r), "scale or bias"));
  for (int i : statistics) EPL_TRY(expect_shape(q, i, statistics_of(x.shape, r), "mean or rstd"));
  return r;
}

// Leading dimensions pass (and are summed over for the gradients of scale and bias); the normalised ones are
// unshardable.
Result<ShardingRule> norm_rule(const OpQuery& q) {
  const int ndim = q.in(0).ndim(), axis = q.axis("axis", ndim);
  RuleWriter rule(q);
  for (int d = 0; d < axis; ++d) {
    const int factor = rule.factor(q.in(0).shape[d]);
    // Scale and bias have fewer dimensions than x wherever this loop runs.
    for (int i = 0; i < q.inputs(); ++i)
      if (q.has(i) && q.in(i).ndim() == ndim) rule.input(i, d, factor);
    for (int i = 0; i < q.outputs(); ++i)
      if (q.has_output(i) && q.out(i).ndim() == ndim) rule.output(i, d, factor);
  }
  return rule.done();
}
// Cut along the normalised dimensions, which scale and bias have alone.
PartitionRule along_normalised() {
  return {.ties = [](Ties& t) {
    const int ndim = t.q.in(0).ndim(), axis = t.q.axis("axis", ndim);
    for (int d = axis; d < ndim; ++d) {
      const int factor = t.factor(t.q.in(0).shape[static_cast<size_t>(d)]);
      for (int i = 0; i < t.q.inputs(); ++i)
        if (t.q.has(i)) t.input(i, t.q.in(i).ndim() == ndim ? d : d - axis, factor);
      for (int i = 0; i < t.q.outputs(); ++i)
        if (t.q.has_output(i)) t.output(i, t.q.out(i).ndim() == ndim ? d : d - axis, factor);
    }
  }};
}
double norm_flops(const OpQuery& q) { return 8.0 * static_cast<double>(q.in(0).elements()); }

std::vector<Option> norm_attributes(bool epsilon) {
  std::vector<Option> specs = {{"axis", int64_t{-1}}};
  if (epsilon) specs.push_back({"epsilon", 1e-5});
  return specs;
}

// dx of one row of a norm whose result is (x - mean) * rstd * scale; an RMS norm has no mean.
void norm_grad_reference(const Reference& r, int mean_input, int rstd_input, int scale_input) {
  const TensorView &dy = r.in(0), &x = r.in(1);
  const Rows rows = rows_of(x.shape(), r.attributes().integer("axis"));
  const int64_t width = rows.width;
  const auto centred = [&](int64_t row, int64_t i) {
    return (x.get(row * width + i) - (mean_input >= 0 ? r.in(mean_input).get(row) : 0.0)) * r.in(rstd_input).get(row);
  };
  for (int64_t row = 0; row < rows.count; ++row) {
    double sum = 0, product = 0;
    const auto scaled = [&](int64_t i) {
      return dy.get(row * width + i) * (r.has(scale_input) ? r.in(scale_input).get(i) : 1.0);
    };
    for (int64_t i = 0; i < width; ++i) sum += scaled(i), product += scaled(i) * centred(row, i);
    const double n = static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) {
      const double shift = mean_input >= 0 ? sum / n : 0.0;
      r.out(0).set(row * width + i, (scaled(i) - shift - centred(row, i) * product / n) * r.in(rstd_input).get(row));
    }
  }
  for (int64_t i = 0; i < width; ++i) {
    if (r.has_output(1))
      r.out(1).set(i, unit_sum(rows.count, r.units(), r.out(1).dtype(),
                               [&](int64_t row) { return dy.get(row * width + i) * centred(row, i); }));
    if (r.has_output(2))
      r.out(2).set(
          i, unit_sum(rows.count, r.units(), r.out(2).dtype(), [&](int64_t row) { return dy.get(row * width + i); }));
  }
}
}  // namespace

EPL_OP(layer_norm) {
  return {.doc =
              "y = (x - mean) * rstd * scale + bias over the dimensions from `axis` on, rstd = 1 / sqrt(variance + "
              "epsilon); mean "
              "and rstd keep those dimensions at size one.",
          .signature = "x, scale?, bias? -> y, mean, rstd",
          .attributes = norm_attributes(true),
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_ASSIGN(const Rows r, check_norm(q, 0, {1, 2}, {}));
            const DType type = q.in(0).dtype;
            return OutputTypes{
                q.in(0), {type, statistics_of(q.in(0).shape, r)}, {type, statistics_of(q.in(0).shape, r)}};
          },
          .body =
              [](Body& b) {
                const Var x = b.in(0);
                const Ints axes = axes_from(b.axis("axis", x.ndim()), x.ndim());
                const Var mean = b.b.mean(x, axes), centred = x - mean;
                const Var variance = b.b.mean(centred * centred, axes);
                const Var rstd = b.b.reciprocal(b.b.sqrt(variance + b.attributes().number("epsilon")));
                Var y = centred * rstd;
                if (b.has(1)) y = y * b.in(1);
                if (b.has(2)) y = y + b.in(2);
                b.set(0, y), b.set(1, mean), b.set(2, rstd);
              },
          // Gradients that flow into the statistics themselves are those of the written-out formula.
          .gradient =
              [](Grad& g) {
                if (g.upstream(1) || g.upstream(2)) {
                  g.b.fail(unsupported(
                      "layer_norm: no gradient through the outputs mean and rstd; write the norm out to train them"));
                  return;
                }
                std::vector<Var> inputs = {g.upstream(0), g.in(0), saved_output(g, 1), saved_output(g, 2)};
                if (g.has(1)) inputs.push_back(g.in(1));
                const std::vector<Var> d =
                    g.b.emit_all("layer_norm_grad", inputs, {{"axis", g.attributes().integer("axis")}});
                if (!g.b.status().ok()) return;
                g.set(0, d[0]);
                if (g.needs(1)) g.set(1, d[1]);
                if (g.needs(2)) g.set(2, d[2]);
              },
          .sharding_of = norm_rule,
          .flops = norm_flops,
          .samples = {"f32[4,7], f32[7], f32[7]", "f32[4,3,6], f32[6] {epsilon=0.001}",
                      "f32[4,3,2], f32[3,2], f32[3,2] {axis=1}", "f32[4,5]", "f32[3,4], -, f32[4]",
                      "f32[2,3], f32[2,3], f32[2,3] {axis=0}"}};
}

EPL_PARTITION(layer_norm) { return along_normalised(); }

EPL_OP(layer_norm_grad) {
  return {.doc = "Gradients of layer_norm's x, scale and bias; the latter two sum over all rows.",
          .signature = "dy, x, mean, rstd, scale? -> dx, dscale, dbias",
          .attributes = norm_attributes(false),
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_ASSIGN(const Rows r, check_norm(q, 1, {4}, {2, 3}));
            EPL_TRY(expect_shape(q, 0, q.in(1).shape, "dy"));
            return OutputTypes{
                q.in(1), {q.in(1).dtype, inner_of(q.in(1).shape, r)}, {q.in(1).dtype, inner_of(q.in(1).shape, r)}};
          },
          .reference = [](const Reference& r) { norm_grad_reference(r, 2, 3, 4); },
          .body =
              [](Body& b) {
                const Var dy = b.in(0), x = b.in(1), rstd = b.in(3);
                const int axis = b.axis("axis", x.ndim());
                const Ints axes = axes_from(axis, x.ndim());
                const Shape inner(x.shape().begin() + axis, x.shape().end());
                const Var centred = (x - b.in(2)) * rstd, scaled = b.has(4) ? dy * b.in(4) : dy;
                b.set(0, (scaled - b.b.mean(scaled, axes) - centred * b.b.mean(scaled * centred, axes)) * rstd);
                b.set(1, b.b.sum_to(dy * centred, inner));
                b.set(2, b.b.sum_to(dy, inner));
              },
          .sharding_of = norm_rule,
          .flops = norm_flops,
          .written_over = 0,
          .samples = {"f32[4,7], f32[4,7], f32[4,1], f32[4,1](0.5..2), f32[7]",
                      "f32[4,3,2], f32[4,3,2], f32[4,1,1], f32[4,1,1](0.5..2) {axis=1}"}};
}

EPL_PARTITION(layer_norm_grad) { return along_normalised(); }

EPL_OP(rms_norm) {
  return {
      .doc =
          "y = x * rstd * scale over the dimensions from `axis` on, rstd = 1 / sqrt(mean(x^2) + epsilon), which keeps "
          "those "
          "dimensions at size one.",
      .signature = "x, scale? -> y, rstd",
      .attributes = norm_attributes(true),
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        EPL_ASSIGN(const Rows r, check_norm(q, 0, {1}, {}));
        return OutputTypes{q.in(0), {q.in(0).dtype, statistics_of(q.in(0).shape, r)}};
      },
      .body =
          [](Body& b) {
            const Var x = b.in(0);
            const Ints axes = axes_from(b.axis("axis", x.ndim()), x.ndim());
            const Var rstd = b.b.reciprocal(b.b.sqrt(b.b.mean(x * x, axes) + b.attributes().number("epsilon")));
            b.set(0, b.has(1) ? x * rstd * b.in(1) : x * rstd);
            b.set(1, rstd);
          },
      .gradient =
          [](Grad& g) {
            if (g.upstream(1)) {
              g.b.fail(unsupported("rms_norm: no gradient through the output rstd; write the norm out to train it"));
              return;
            }
            std::vector<Var> inputs = {g.upstream(0), g.in(0), saved_output(g, 1)};
            if (g.has(1)) inputs.push_back(g.in(1));
            const std::vector<Var> d =
                g.b.emit_all("rms_norm_grad", inputs, {{"axis", g.attributes().integer("axis")}});
            if (!g.b.status().ok()) return;
            g.set(0, d[0]);
            if (g.needs(1)) g.set(1, d[1]);
          },
      .sharding_of = norm_rule,
      .flops = norm_flops,
      .samples = {"f32[4,7], f32[7]", "f32[4,3,6] {epsilon=0.001}", "f32[4,3,2], f32[3,2] {axis=-2}"}};
}

EPL_PARTITION(rms_norm) { return along_normalised(); }

EPL_OP(rms_norm_grad) {
  return {.doc = "Gradients of rms_norm's x and scale; the latter sums over all rows.",
          .signature = "dy, x, rstd, scale? -> dx, dscale",
          .attributes = norm_attributes(false),
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_ASSIGN(const Rows r, check_norm(q, 1, {3}, {2}));
            EPL_TRY(expect_shape(q, 0, q.in(1).shape, "dy"));
            return OutputTypes{q.in(1), {q.in(1).dtype, inner_of(q.in(1).shape, r)}};
          },
          .reference = [](const Reference& r) { norm_grad_reference(r, -1, 2, 3); },
          .body =
              [](Body& b) {
                const Var dy = b.in(0), x = b.in(1), rstd = b.in(2);
                const int axis = b.axis("axis", x.ndim());
                const Ints axes = axes_from(axis, x.ndim());
                const Var centred = x * rstd, scaled = b.has(3) ? dy * b.in(3) : dy;
                b.set(0, (scaled - centred * b.b.mean(scaled * centred, axes)) * rstd);
                b.set(1, b.b.sum_to(dy * centred, Shape(x.shape().begin() + axis, x.shape().end())));
              },
          .sharding_of = norm_rule,
          .flops = norm_flops,
          .written_over = 0,
          .samples = {"f32[4,7], f32[4,7], f32[4,1](0.5..2), f32[7]",
                      "f32[4,3,2], f32[4,3,2], f32[4,1,1](0.5..2) {axis=1}"}};
}

EPL_PARTITION(rms_norm_grad) { return along_normalised(); }

}  // namespace epl
