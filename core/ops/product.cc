// Matrix products. Every output element is one sum over k; sums over the batch run per unit.
#include "core/ir/combine.h"
#include "core/ops/common.h"

namespace epl {
using namespace ops;

namespace {
// A matmul seen as batches of [m,k] x [k,n] by NumPy's rules: vectors are promoted, leading dimensions broadcast.
struct MatmulSizes {
  int64_t m = 1, k = 1, n = 1, k_b = 1;
};
MatmulSizes matmul_sizes(const Attributes& attributes, const Shape& a, const Shape& b) {
  const bool ta = attributes.flag("transpose_a"), tb = attributes.flag("transpose_b");
  const bool vector_a = a.size() == 1, vector_b = b.size() == 1;
  const size_t na = a.size(), nb = b.size();
  return {.m = vector_a ? 1 : a[ta ? na - 1 : na - 2],
          .k = vector_a ? a[0] : a[ta ? na - 2 : na - 1],
          .n = vector_b ? 1 : b[tb ? nb - 2 : nb - 1],
          .k_b = vector_b ? b[0] : b[tb ? nb - 1 : nb - 2]};
}
struct MatmulShape : MatmulSizes {
  Shape batch_a, batch_b, batch;  // leading dimensions
  bool vector_a = false, vector_b = false;
  Shape output() const {
    Shape shape = batch;
    if (!vector_a) shape.push_back(m);
    if (!vector_b) shape.push_back(n);
    return shape;
  }
};

Result<MatmulShape> matmul_shape(const OpQuery& q) {
  const Shape &a = q.in(0).shape, &b = q.in(1).shape;
  const bool ta = q.attributes().flag("transpose_a"), tb = q.attributes().flag("transpose_b");
  if (a.empty() || b.empty()) return misfit(q, "operands need at least one dimension");
  MatmulShape s;
  s.vector_a = a.size() == 1;
  s.vector_b = b.size() == 1;
  if ((s.vector_a && ta) || (s.vector_b && tb)) return misfit(q, "a vector cannot be transposed");
  static_cast<MatmulSizes&>(s) = matmul_sizes(q.attributes(), a, b);
  const size_t na = a.size(), nb = b.size();
  if (s.k != s.k_b) return misfit(q, "inner sizes ", s.k, " and ", s.k_b, " differ");
  if (na > 2) s.batch_a.assign(a.begin(), a.end() - 2);
  if (nb > 2) s.batch_b.assign(b.begin(), b.end() - 2);
  auto batch = broadcast_shapes(s.batch_a, s.batch_b);
  if (!batch.ok()) return misfit(q, "leading dimensions do not broadcast");
  s.batch = *batch;
  return s;
}

// The sizes before the matrix of an operand.
std::span<const int64_t> leading(const Shape& shape) {
  return shape.size() > 2 ? std::span(shape).first(shape.size() - 2) : std::span<const int64_t>();
}

// Index of the matrix of an operand for a batch index of the output.
int64_t batch_of(std::span<const int64_t> batch, const Dims& index) {
  int64_t linear = 0;
  const size_t added = index.size() - batch.size();
  for (size_t d = 0; d < batch.size(); ++d) linear = linear * batch[d] + (batch[d] == 1 ? 0 : index[d + added]);
  return linear;
}

// The sum of a's elements at at_a(0..n-1), each times b's at at_b(0..n-1), as element o of `out`. Real numbers: a
// unit_sum. Integers keep all their digits and wrap as their type does, in whatever order.
template <class A, class B>
void store_product_sum(const Reference& r, const TensorView& out, int64_t o, int64_t n, const A& at_a, const B& at_b) {
  if (is_float(out.dtype())) {
    const auto term = [&](int64_t k) { return r.in(0).get(at_a(k)) * r.in(1).get(at_b(k)); };
    return out.set(o, unit_sum(n, r.units(), out.dtype(), term));
  }
  uint64_t sum = 0;
  for (int64_t k = 0; k < n; ++k)
    sum += static_cast<uint64_t>(r.in(0).get_int(at_a(k))) * static_cast<uint64_t>(r.in(1).get_int(at_b(k)));
  out.set_int(o, static_cast<int64_t>(sum));
}

void matmul_reference(const Reference& r) {
  const Shape &a = r.in(0).shape(), &b = r.in(1).shape(), &y = r.out(0).shape();
  const MatmulSizes s = matmul_sizes(r.attributes(), a, b);
  const bool ta = r.attributes().flag("transpose_a"), tb = r.attributes().flag("transpose_b");
  const size_t batches = std::max(leading(a).size(), leading(b).size());
  for_each_index(std::span(y).first(batches), [&](int64_t batch, const Dims& index) {
    const int64_t a0 = batch_of(leading(a), index) * s.m * s.k, b0 = batch_of(leading(b), index) * s.k * s.n;
    for (int64_t m = 0; m < s.m; ++m)
      for (int64_t n = 0; n < s.n; ++n) {
        store_product_sum(
            r, r.out(0), (batch * s.m + m) * s.n + n, s.k,
            [&](int64_t k) { return a0 + (ta ? k * s.m + m : m * s.k + k); },
            [&](int64_t k) { return b0 + (tb ? n * s.k + k : k * s.n + n); });
      }
  });
}

// The general matmul gradient for operands of at least two dimensions.
void matrix_gradient(Grad& g, const ProductGradient& p, const Var& a, const Var& b, const Var& dy, bool ta, bool tb,
                     Var& da, Var& db) {
  const auto product = [&](const Var& left, const Var& right, bool transpose_left, bool transpose_right, bool wide) {
    return g.b.emit("matmul", {left, right},
                    {{"transpose_a", transpose_left}, {"transpose_b", transpose_right}, {"wide", wide}});
  };
  if (g.needs(0)) da = ta ? product(b, dy, tb, true, p.wide) : product(dy, b, false, !tb, p.wide);
  if (!g.needs(1)) return;
  if (b.ndim() == 2 && a.ndim() > 2 && !ta)  // sums the leading dimensions as it goes
    db = g.b.emit("linear_grad_weight", {a, dy}, {{"transpose_w", tb}, {"wide", p.wide_weight}});
  else
    db = tb ? product(dy, a, true, ta, p.wide_weight) : product(a, dy, !ta, false, p.wide_weight);
}

void matmul_gradient(Grad& g) {
  const bool ta = g.attributes().flag("transpose_a"), tb = g.attributes().flag("transpose_b");
  const ProductGradient p(g);
  Var a = g.in(0), b = g.in(1), dy = p.dy;
  // A vector becomes a matrix of one row or column; dy gets the dimension that it lacks.
  const bool vector_a = a.ndim() == 1, vector_b = b.ndim() == 1;
  Shape shape = dy.shape();
  if (vector_a) {
    shape.insert(shape.end() - (vector_b ? 0 : 1), 1);
    a = g.b.reshape(a, {1, a.dim(0)});
  }
  if (vector_b) {
    shape.push_back(1);
    b = g.b.reshape(b, {b.dim(0), 1});
  }
  Var da, db;
  matrix_gradient(g, p, a, b, g.b.reshape(dy, shape), ta, tb, da, db);
  if (g.needs(0)) g.set(0, vector_a ? g.b.reshape(g.b.sum_to(da, a.shape()), g.in(0).shape()) : da);
  if (g.needs(1)) g.set(1, vector_b ? g.b.reshape(g.b.sum_to(db, b.shape()), g.in(1).shape()) : db);
}

Result<ShardingRule> matmul_rule(const OpQuery& q) {
  EPL_ASSIGN(const MatmulShape s, matmul_shape(q));
  const bool ta = q.attributes().flag("transpose_a"), tb = q.attributes().flag("transpose_b");
  RuleWriter rule(q);
  const int batches = static_cast<int>(s.batch.size());
  const int batches_a = static_cast<int>(s.batch_a.size()), batches_b = static_cast<int>(s.batch_b.size());
  for (int d = 0; d < batches; ++d) {
    const int factor = rule.factor(s.batch[d]);
    if (d >= batches - batches_a) rule.input(0, d - (batches - batches_a), factor);
    if (d >= batches - batches_b) rule.input(1, d - (batches - batches_b), factor);
    rule.output(0, d, factor);
  }
  const int k = rule.factor(s.k), m = rule.factor(s.m), n = rule.factor(s.n);
  if (s.vector_a) {
    rule.input(0, 0, k);
  } else {
    rule.input(0, batches_a + (ta ? 0 : 1), k);
    rule.input(0, batches_a + (ta ? 1 : 0), m);
    rule.output(0, batches, m);
  }
  if (s.vector_b) {
    rule.input(1, 0, k);
  } else {
    rule.input(1, batches_b + (tb ? 1 : 0), k);
    rule.input(1, batches_b + (tb ? 0 : 1), n);
    rule.output(0, batches + (s.vector_a ? 0 : 1), n);
  }
  return rule.done();
}

Result<OutputTypes> floats_of_shape(const OpQuery& q, Shape shape) {
  EPL_TRY(product_dtypes(q));
  if (q.in(0).dtype == DType::boolean) return misfit(q, "needs numbers");
  return OutputTypes{{product_dtype(q), std::move(shape)}};
}

// x [rows..., k], w [k,n] or [n,k].
struct LinearShape {
  int64_t rows, k, n;
};
LinearShape linear_shape(const OpQuery& q) {
  const Shape &x = q.in(0).shape, &w = q.in(1).shape;
  return {elements_before(x, q.in(0).ndim() - 1), x.back(), w[q.attributes().flag("transpose_w") ? 0 : 1]};
}

Result<OutputTypes> linear_infer(const OpQuery& q) {
  const bool transposed = q.attributes().flag("transpose_w");
  if (q.in(0).ndim() < 1 || q.in(1).ndim() != 2) return misfit(q, "x needs a dimension and w exactly two");
  const int64_t k = q.in(1).shape[transposed ? 1 : 0], n = q.in(1).shape[transposed ? 0 : 1];
  if (q.in(0).shape.back() != k) return misfit(q, "x has ", q.in(0).shape.back(), " features and w takes ", k);
  EPL_TRY(expect_shape(q, 2, {n}, "bias"));
  Shape shape = q.in(0).shape;
  shape.back() = n;
  return floats_of_shape(q, shape);
}

void linear_reference(const Reference& r) {
  const LinearShape s = linear_shape(r.query());
  const bool transposed = r.attributes().flag("transpose_w");
  for (int64_t row = 0; row < s.rows; ++row)
    for (int64_t n = 0; n < s.n; ++n) {
      const auto at_w = [&](int64_t k) { return transposed ? n * s.k + k : k * s.n + n; };
      if (is_float(r.out(0).dtype())) {  // the bias is added before the sum is rounded
        const auto term = [&](int64_t k) { return r.in(0).get(row * s.k + k) * r.in(1).get(at_w(k)); };
        const double sum = unit_sum(s.k, r.units(), r.out(0).dtype(), term);
        r.out(0).set(row * s.n + n, r.has(2) ? sum + r.in(2).get(n) : sum);
        continue;
      }
      store_product_sum(r, r.out(0), row * s.n + n, s.k, [&](int64_t k) { return row * s.k + k; }, at_w);
      if (r.has(2)) combine_element(ScalarOp::add, r.out(0).dtype(), r.out(0).data(), row * s.n + n, r.in(2).data(), n);
    }
}

void linear_gradient(Grad& g) {
  const bool transposed = g.attributes().flag("transpose_w");
  const ProductGradient p(g);
  if (g.needs(0)) g.set(0, g.b.emit("linear", {p.dy, g.in(1)}, {{"transpose_w", !transposed}, {"wide", p.wide}}));
  if (g.needs(1)) {
    g.set(1, g.b.emit("linear_grad_weight", {g.in(0), p.dy}, {{"transpose_w", transposed}, {"wide", p.wide_weight}}));
  }
  if (g.needs(2)) g.set(2, g.upstream(0));  // summed down to the bias
}

void linear_grad_weight_reference(const Reference& r) {
  const int64_t k = r.in(0).shape().back(), n = r.in(1).shape().back(), rows = k == 0 ? 0 : r.in(0).elements() / k;
  const bool transposed = r.attributes().flag("transpose_w");
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < n; ++j) {
      store_product_sum(
          r, r.out(0), transposed ? j * k + i : i * n + j, rows, [&](int64_t row) { return row * k + i; },
          [&](int64_t row) { return row * n + j; });
    }
}
}  // namespace

EPL_OP(matmul) {
  return {
      .doc =
          "Matrix product by NumPy's rules: a[...,m,k] b[...,k,n] -> y[...,m,n], leading dimensions broadcast, vectors "
          "promoted; the transposes swap the last two dimensions of an operand first.",
      .signature = "a, b -> y",
      .attributes = {{"transpose_a", false}, {"transpose_b", false}, wide_option()},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        EPL_ASSIGN(const MatmulShape s, matmul_shape(q));
        return floats_of_shape(q, s.output());
      },
      .reference = matmul_reference,
      .gradient = matmul_gradient,
      .sharding_of = matmul_rule,
      .flops =
          [](const OpQuery& q) {
            auto s = matmul_shape(q);
            return s.ok() ? 2.0 * static_cast<double>(element_count(s->batch) * s->m * s->n * s->k) : 0.0;
          },
      .weight_product = WeightProduct::matrix,
      .transposes_weight = "transpose_b",
      .narrow_inputs = {0, 1},
      .samples = {"f32[4,6], f32[6,8]", "f32[6,4], f32[6,8] {transpose_a=true}",
                  "f32[4,6], f32[8,6] {transpose_b=true}", "f32[6,4], f32[8,6] {transpose_a=true,transpose_b=true}",
                  "f32[2,4,6], f32[2,6,8]", "f32[2,4,6], f32[6,8]", "f32[2,4,6], f32[8,6] {transpose_b=true}",
                  "f32[2,6,4], f32[6,8] {transpose_a=true}", "f32[2,6,1], f32[6,8] {transpose_a=true}",
                  "f32[4,6], f32[2,6,8]", "f32[2,1,4,6], f32[3,6,2]", "f32[2,2,4,6], f32[2,2,8,6] {transpose_b=true}",
                  "f32[6], f32[6]", "f32[4,6], f32[6]", "f32[6], f32[6,8]", "f32[2,4,6], f32[6]", "f32[6], f32[2,6,4]",
                  "bf16[4,6], bf16[6,8] {wide=true}", "f16[2,4,6], f16[8,6] {transpose_b=true,wide=true}"}};
}

EPL_OP(linear) {
  return {
      .doc = "x[...,k] w[k,n] + bias[n] -> y[...,n]; w is [n,k] if `transpose_w`.",
      .signature = "x, w, bias? -> y",
      .attributes = {{"transpose_w", false}, wide_option()},
      .infer = linear_infer,
      .reference = linear_reference,
      .gradient = linear_gradient,
      .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
        const bool transposed = q.attributes().flag("transpose_w");
        const int last = q.in(0).ndim() - 1;
        RuleWriter rule(q);
        for (int d = 0; d < last; ++d) {
          const int factor = rule.factor(q.in(0).shape[d]);
          rule.input(0, d, factor);
          rule.output(0, d, factor);
        }
        const int k = rule.factor(q.in(0).shape[last]), n = rule.factor(q.out(0).shape[last]);
        if (q.has(2)) rule.rule().factors[static_cast<size_t>(k)].added = 2;
        rule.input(0, last, k);
        rule.input(1, transposed ? 1 : 0, k);
        rule.input(1, transposed ? 0 : 1, n);
        rule.input(2, 0, n);
        rule.output(0, last, n);
        return rule.done();
      },
      .flops = [](const OpQuery& q) { return 2.0 * static_cast<double>(q.out(0).elements() * q.in(0).shape.back()); },
      .weight_product = WeightProduct::matrix,
      .transposes_weight = "transpose_w",
      .narrow_inputs = {0, 1},
      .samples = {"f32[4,6], f32[6,8], f32[8]", "f32[4,6], f32[6,8]", "f32[2,3,6], f32[8,6], f32[8] {transpose_w=true}",
                  "f32[4,6], f32[8,6] {transpose_w=true}", "f32[6], f32[6,4], f32[4]",
                  "bf16[4,6], bf16[6,8] {wide=true}", "f16[4,6], f16[8,6] {transpose_w=true,wide=true}"}};
}

EPL_OP(linear_grad_weight) {
  return {
      .doc =
          "Gradient of linear's weight: x[...,k], dy[...,n] -> dw[k,n], or [n,k] if `transpose_w`; sums all leading "
          "dimensions.",
      .signature = "x, dy -> dw",
      .attributes = {{"transpose_w", false}, wide_option()},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        Shape x = q.in(0).shape, dy = q.in(1).shape;
        if (x.empty() || dy.empty()) return misfit(q, "operands need at least one dimension");
        const int64_t k = x.back(), n = dy.back();
        x.pop_back();
        dy.pop_back();
        if (x != dy) return misfit(q, "leading dimensions differ");
        return floats_of_shape(q, q.attributes().flag("transpose_w") ? Shape{n, k} : Shape{k, n});
      },
      .reference = linear_grad_weight_reference,
      .gradient =
          [](Grad& g) {
            const bool transposed = g.attributes().flag("transpose_w");
            const ProductGradient p(g);
            if (g.needs(0))
              g.set(0, g.b.emit("linear", {g.in(1), p.dy}, {{"transpose_w", !transposed}, {"wide", p.wide}}));
            if (g.needs(1))
              g.set(1, g.b.emit("linear", {g.in(0), p.dy}, {{"transpose_w", transposed}, {"wide", p.wide}}));
          },
      .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
        const bool transposed = q.attributes().flag("transpose_w");
        const int last = q.in(0).ndim() - 1;
        RuleWriter rule(q);
        for (int d = 0; d < last; ++d) {
          const int factor = rule.factor(q.in(0).shape[d]);
          rule.input(0, d, factor);
          rule.input(1, d, factor);
        }
        const int k = rule.factor(q.in(0).shape[last]), n = rule.factor(q.in(1).shape[last]);
        rule.input(0, last, k);
        rule.input(1, last, n);
        rule.output(0, transposed ? 1 : 0, k);
        rule.output(0, transposed ? 0 : 1, n);
        return rule.done();
      },
      .flops = [](const OpQuery& q) { return 2.0 * static_cast<double>(q.in(0).elements() * q.in(1).shape.back()); },
      .samples = {"f32[4,6], f32[4,8]", "f32[4,3,6], f32[4,3,2] {transpose_w=true}",
                  "bf16[4,6], bf16[4,8] {wide=true}"}};
}

}  // namespace epl
