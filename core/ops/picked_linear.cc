// Products in which each row gathers its matrix, as the tokens of a mixture of experts do. The matrices that are
// gathered are never laid out one beside another: that would take a matrix for every row. Indices may be negative and
// then count from the end; a row whose index is out of range is NaN, which the step's check for finite values reports,
// and adds nothing.
#include "core/ir/index_range.h"
#include "core/ir/partition_rule.h"
#include "core/ops/indexing.h"

namespace epl {
using namespace ops;

namespace {

struct PickedSizes {
  int64_t rows = 0, k = 0, n = 0, matrices = 0;
  bool transposed = false;
  int64_t weight(int64_t e, int64_t i, int64_t j) const {
    return transposed ? (e * n + j) * k + i : (e * k + i) * n + j;
  }
};

// x [s,k], w [e,k,n] or [e,n,k].
PickedSizes picked_sizes(const OpQuery& q, const Shape& x, const Shape& w) {
  const bool transposed = q.attributes().flag("transpose_w");
  return {x[0], x[1], w[transposed ? 1 : 2], w[0], transposed};
}

Result<OutputTypes> picked_infer(const OpQuery& q) {
  EPL_TRY(integer_operand(q, 2));
  if (q.in(0).ndim() != 2 || q.in(1).ndim() != 3) return misfit(q, "x needs two dimensions and w three");
  if (q.in(0).dtype != q.in(1).dtype || !is_float(q.in(0).dtype)) return misfit(q, "x and w need one float type");
  const bool transposed = q.attributes().flag("transpose_w");
  const int64_t takes = q.in(1).shape[transposed ? 2 : 1];
  if (q.in(0).shape[1] != takes) return misfit(q, "x has ", q.in(0).shape[1], " features and w takes ", takes);
  EPL_TRY(expect_shape(q, 2, {q.in(0).shape[0]}, "indices"));
  return OutputTypes{{q.in(0).dtype, {q.in(0).shape[0], q.in(1).shape[transposed ? 1 : 2]}}};
}

void picked_reference(const Reference& r) {
  const PickedSizes s = picked_sizes(r.query(), r.in(0).shape(), r.in(1).shape());
  for (int64_t row = 0; row < s.rows; ++row) {
    const int64_t e = wrapped_index(r.in(2).get_int(row), s.matrices);
    for (int64_t j = 0; j < s.n; ++j) {
      const int64_t to = row * s.n + j;
      if (e < 0) {
        store_out_of_range(r.out(0), to);
        continue;
      }
      const auto term = [&](int64_t i) { return r.in(0).get(row * s.k + i) * r.in(1).get(s.weight(e, i, j)); };
      r.out(0).set(to, unit_sum(s.k, r.units(), r.out(0).dtype(), term));
    }
  }
}

void picked_grad_weight_reference(const Reference& r) {
  const int64_t rows = r.in(0).shape()[0], k = r.in(0).shape()[1], n = r.in(1).shape()[1];
  const PickedSizes s{rows, k, n, r.attributes().integer("size"), r.attributes().flag("transpose_w")};
  for (int64_t e = 0; e < s.matrices; ++e)
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const auto term = [&](int64_t row) {
          const bool here = wrapped_index(r.in(2).get_int(row), s.matrices) == e;
          return here ? r.in(0).get(row * k + i) * r.in(1).get(row * n + j) : 0.0;
        };
        r.out(0).set(s.weight(e, i, j), unit_sum(rows, r.units(), r.out(0).dtype(), term));
      }
}

// Of both rules.
struct PickedFactors {
  int rows, k, n;
};
PickedFactors picked_factors(RuleWriter& rule, int64_t rows, int64_t k, int64_t n) {
  return {rule.factor(rows), rule.factor(k), rule.factor(n)};
}

// Rows that gathered a matrix of another rank are no work here.
double picked_flops(const OpQuery& q, int64_t rows, int64_t k, int64_t n) {
  return 2.0 * static_cast<double>(rows * k * n) / static_cast<double>(q.attributes().integer("shared"));
}

}  // namespace

EPL_OP(picked_linear) {
  return {.doc =
              "A product with the matrix that each row gathers: x[s,k] w[indices[s],k,n] -> y[s,n]; w is [e,n,k] if "
              "`transpose_w`. The indices are spread over `shared` ranks, of which each does its part.",
          .signature = "x, w, indices -> y",
          .attributes = {{"transpose_w", false}, {"shared", int64_t{1}}},
          .infer = picked_infer,
          .reference = picked_reference,
          .gradient =
              [](Grad& g) {
                const bool transposed = g.attributes().flag("transpose_w");
                const Var dy = g.upstream(0);
                if (g.needs(0))
                  g.set(0, g.b.emit("picked_linear", {dy, g.in(1), g.in(2)}, {{"transpose_w", !transposed}}));
                if (g.needs(1))
                  g.set(1, g.b.emit("picked_linear_grad_weight", {g.in(0), dy, g.in(2)},
                                    {{"transpose_w", transposed}, {"size", g.in(1).dim(0)}}));
              },
          .no_gradient_inputs = {2},
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            const PickedSizes s = picked_sizes(q, q.in(0).shape, q.in(1).shape);
            RuleWriter rule(q);
            const PickedFactors f = picked_factors(rule, s.rows, s.k, s.n);
            rule.input(0, 0, f.rows);
            rule.input(0, 1, f.k);
            rule.input(1, s.transposed ? 2 : 1, f.k);
            rule.input(1, s.transposed ? 1 : 2, f.n);
            rule.input(2, 0, f.rows);
            rule.output(0, 0, f.rows);
            rule.output(0, 1, f.n);
            return rule.done();
          },
          .flops =
              [](const OpQuery& q) {
                const PickedSizes s = picked_sizes(q, q.in(0).shape, q.in(1).shape);
                return picked_flops(q, s.rows, s.k, s.n);
              },
          .samples = {"f32[8,6], f32[4,6,8], i64[8](-4..4)", "f32[8,6], f32[4,4,6], i32[8](0..4) {transpose_w=true}"}};
}

EPL_INDICES(picked_linear) {
  const int64_t matrices = q.in(1).shape[0];
  return {.input = 2, .low = -matrices, .high = matrices, .what = cat("index into ", matrices, " matrices")};
}

EPL_PARTITION(picked_linear) {
  return {.ties = [](Ties& t) { t.input(1, 0, t.factor(t.q.in(1).shape[0])); }, .indices = 2, .shared = "shared"};
}

EPL_OP(picked_linear_grad_weight) {
  return {
      .doc =
          "Gradient of picked_linear's w, of `size` matrices: x[s,k], dy[s,n], indices[s] -> dw[e,k,n], or [e,n,k] "
          "if `transpose_w`; each matrix sums the rows that gathered it. The indices are spread over `shared` ranks.",
      .signature = "x, dy, indices -> dw",
      .attributes = {{"transpose_w", false}, {"size", int64_t{0}, true}, {"shared", int64_t{1}}},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        EPL_TRY(integer_operand(q, 2));
        if (q.in(0).ndim() != 2 || q.in(1).ndim() != 2) return misfit(q, "x and dy need two dimensions");
        if (q.in(0).dtype != q.in(1).dtype || !is_float(q.in(0).dtype))
          return misfit(q, "x and dy need one float type");
        if (q.in(0).shape[0] != q.in(1).shape[0]) return misfit(q, "x and dy have different rows");
        EPL_TRY(expect_shape(q, 2, {q.in(0).shape[0]}, "indices"));
        const int64_t e = q.attributes().integer("size"), k = q.in(0).shape[1], n = q.in(1).shape[1];
        if (e < 0) return misfit(q, "size is negative");
        return OutputTypes{{q.in(0).dtype, q.attributes().flag("transpose_w") ? Shape{e, n, k} : Shape{e, k, n}}};
      },
      .reference = picked_grad_weight_reference,
      .gradient =
          [](Grad& g) {
            const bool transposed = g.attributes().flag("transpose_w");
            const Var ddw = g.upstream(0);
            if (g.needs(0))
              g.set(0, g.b.emit("picked_linear", {g.in(1), ddw, g.in(2)}, {{"transpose_w", !transposed}}));
            if (g.needs(1)) g.set(1, g.b.emit("picked_linear", {g.in(0), ddw, g.in(2)}, {{"transpose_w", transposed}}));
          },
      .no_gradient_inputs = {2},
      .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
        const bool transposed = q.attributes().flag("transpose_w");
        RuleWriter rule(q);
        const PickedFactors f = picked_factors(rule, q.in(0).shape[0], q.in(0).shape[1], q.in(1).shape[1]);
        rule.input(0, 0, f.rows);
        rule.input(0, 1, f.k);
        rule.input(1, 0, f.rows);
        rule.input(1, 1, f.n);
        rule.input(2, 0, f.rows);
        rule.output(0, transposed ? 2 : 1, f.k);
        rule.output(0, transposed ? 1 : 2, f.n);
        return rule.done();
      },
      .localize = [](Attributes& attributes, const std::vector<TensorType>&,
                     const std::vector<TensorType>& out) { attributes.set("size", out[0].shape[0]); },
      .flops = [](const OpQuery& q) { return picked_flops(q, q.in(0).shape[0], q.in(0).shape[1], q.in(1).shape[1]); },
      .samples = {"f32[8,6], f32[8,4], i64[8](-4..4) {size=4}",
                  "f32[8,6], f32[8,4], i32[8](0..4) {size=4,transpose_w=true}"}};
}

EPL_PARTITION(picked_linear_grad_weight) {
  return {.ties = [](Ties& t) { t.output(0, 0, t.factor(t.q.attributes().integer("size"))); },
          .indices = 2,
          .shared = "shared"};
}

}  // namespace epl
