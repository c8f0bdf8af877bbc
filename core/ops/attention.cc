// Scaled dot-product attention (Vaswani et al., 2017) with grouped queries: h query heads share hk key and value heads.
// The log of each row's sum of exponentials is kept for the gradient, so that the scores need not be.
#include <limits>

#include "core/ops/common.h"

namespace epl {
using namespace ops;

namespace {
struct AttentionShape {
  int64_t batch, heads, key_heads, queries, keys, depth, values;
  int64_t repeat() const { return heads / key_heads; }
};
AttentionShape attention_shape(const Shape& q, const Shape& k, const Shape& v) {
  return {q[0], q[1], k[1], q[2], k[2], q[3], v[3]};
}

Result<AttentionShape> check_attention(const OpQuery& query, int q_at, int bias_at) {
  EPL_TRY(same_dtypes(query, true));
  const TensorType &q = query.in(q_at), &k = query.in(q_at + 1), &v = query.in(q_at + 2);
  if (q.ndim() != 4 || k.ndim() != 4 || v.ndim() != 4)
    return misfit(query, "q, k and v need four dimensions [batch, heads, positions, depth]");
  const AttentionShape s = attention_shape(q.shape, k.shape, v.shape);
  if (s.key_heads == 0 || s.heads % s.key_heads != 0)
    return misfit(query, "the ", s.key_heads, " key heads do not divide the ", s.heads, " query heads");
  if (k.shape != Shape{s.batch, s.key_heads, s.keys, s.depth} ||
      v.shape != Shape{s.batch, s.key_heads, s.keys, s.values})
    return misfit(query, "q, k and v do not fit each other");
  if (query.has(bias_at)) {
    auto joined = broadcast_shapes(query.in(bias_at).shape, {s.batch, s.heads, s.queries, s.keys});
    if (query.in(bias_at).ndim() != 4 || !joined.ok() || *joined != Shape{s.batch, s.heads, s.queries, s.keys})
      return misfit(query, "the bias must broadcast to the scores from four dimensions");
  }
  return s;
}

// Heads as (key head, repeat), so that keys and values broadcast over the repeats.
Var by_group(Builder& b, const Var& x, const AttentionShape& s) {
  return b.reshape(x, {s.batch, s.key_heads, s.repeat(), x.dim(2), x.dim(3)});
}
Var shared(Builder& b, const Var& x, const AttentionShape& s) {
  return b.reshape(x, {s.batch, s.key_heads, 1, x.dim(2), x.dim(3)});
}

// The scores before softmax [b, hk, repeat, s, t], and the capped ones before bias and mask.
struct Scores {
  Var capped, all;
};
Scores scores_of(Builder& b, const Attributes& attributes, const AttentionShape& s, const Var& q, const Var& k,
                 const Var& bias) {
  const double cap = attributes.number("softcap");
  Scores scores;
  scores.capped = b.matmul(by_group(b, q, s), shared(b, k, s), false, true) * attributes.number("scale");
  if (cap != 0) scores.capped = b.tanh(scores.capped * (1 / cap)) * cap;
  scores.all = scores.capped;
  if (bias) {
    const bool one_head = bias.dim(1) == 1;
    scores.all = scores.all + b.reshape(bias, {bias.dim(0), one_head ? 1 : s.key_heads, one_head ? 1 : s.repeat(),
                                               bias.dim(2), bias.dim(3)});
  }
  if (attributes.flag("causal")) {
    Tensor mask({DType::boolean, {s.queries, s.keys}});
    for (int64_t i = 0; i < s.queries; ++i)
      for (int64_t j = 0; j < s.keys; ++j) mask.set_int(i * s.keys + j, j <= i);
    scores.all = b.select(b.constant(mask), scores.all, b.like(scores.all, -std::numeric_limits<double>::infinity()));
  }
  return scores;
}

void attention_body(Body& body) {
  Builder& b = body.b;
  const Var q = body.in(0), k = body.in(1), v = body.in(2);
  const AttentionShape s = attention_shape(q.shape(), k.shape(), v.shape());
  const Var scores = scores_of(b, body.attributes(), s, q, k, body.in(3)).all;
  const Var largest = b.max_along(scores, {4});
  const Var e = b.exp(scores - largest), sum = b.sum(e, {4});
  body.set(0, b.reshape(b.matmul(e / sum, shared(b, v, s)), {s.batch, s.heads, s.queries, s.values}));
  body.set(1, b.reshape(largest + b.log(sum), {s.batch, s.heads, s.queries}));
}

// Beyond this a saved log-sum has fewer than five decimal digits after its point.
constexpr double attention_large_lse = 512;

// Probabilities and the gradient of the scores before softmax, from the saved result and logarithms.
struct ScoreGradients {
  Var probabilities, scores, capped;
};
ScoreGradients score_gradients(Builder& b, const Attributes& attributes, const AttentionShape& s, const Var& dy,
                               const Var& q, const Var& k, const Var& v, const Var& y, const Var& lse,
                               const Var& bias) {
  ScoreGradients g;
  const Scores scores = scores_of(b, attributes, s, q, k, bias);
  g.capped = scores.capped;
  const Var saved = b.reshape(lse, {s.batch, s.key_heads, s.repeat(), s.queries, 1});
  g.probabilities = b.exp(scores.all - saved);
  // A large number has no digits left for the log of the sum: in a row of scores that a mask all made the lowest float,
  // it is gone. Such rows are divided by their sum again.
  const Var large = b.unary("abs", saved) > attention_large_lse, sum = b.sum(g.probabilities, {4});
  g.probabilities = g.probabilities * b.select(large, b.reciprocal(sum), b.like(sum, 1));
  const Var through = b.matmul(by_group(b, dy, s), shared(b, v, s), false, true);
  g.scores = g.probabilities * (through - b.sum(by_group(b, dy, s) * by_group(b, y, s), {4}));
  return g;
}

void attention_grad_body(Body& body) {
  Builder& b = body.b;
  const Var dy = body.in(0), q = body.in(1), k = body.in(2), v = body.in(3);
  const AttentionShape s = attention_shape(q.shape(), k.shape(), v.shape());
  const ScoreGradients g = score_gradients(b, body.attributes(), s, dy, q, k, v, body.in(4), body.in(5), body.in(6));
  const double cap = body.attributes().number("softcap");
  Var ds = g.scores * body.attributes().number("scale");
  if (cap != 0) ds = ds * (1 - g.capped * g.capped * (1 / (cap * cap)));
  body.set(0, b.reshape(b.matmul(ds, shared(b, k, s)), q.shape()));
  body.set(1, b.reshape(b.sum(b.matmul(ds, by_group(b, q, s), true), {2}), k.shape()));
  body.set(2, b.reshape(b.sum(b.matmul(g.probabilities, by_group(b, dy, s), true), {2}), v.shape()));
}

void attention_gradient(Grad& g) {
  if (g.upstream(1)) {
    g.b.fail(unsupported("attention: no gradient through the output lse"));
    return;
  }
  const Var dy = g.upstream(0), q = g.in(0), k = g.in(1), v = g.in(2), y = saved_output(g, 0), lse = saved_output(g, 1);
  std::vector<Var> inputs = {dy, q, k, v, y, lse};
  if (g.has(3)) inputs.push_back(g.in(3));
  if (g.needs(0) || g.needs(1) || g.needs(2)) {
    const std::vector<Var> d = g.b.emit_all("attention_grad", inputs, g.attributes());
    if (!g.b.status().ok()) return;
    for (int i = 0; i < 3; ++i) g.set(i, d[i]);
  }
  // A bias that is trained needs the scores' gradient itself, which only the written-out form has.
  if (g.needs(3)) {
    const AttentionShape s = attention_shape(q.shape(), k.shape(), v.shape());
    const Var ds = score_gradients(g.b, g.attributes(), s, dy, q, k, v, y, lse, g.in(3)).scores;
    g.set(3, g.b.reshape(ds, {s.batch, s.heads, s.queries, s.keys}));
  }
}

// Ties [b, (hk r), s, last] of q-like operands and [b, hk, t, last] of k-like ones. With a causal mask the position
// matters, so queries are unshardable; keys and depths always are.
struct AttentionFactors {
  int batch, head, repeat, query;
};
// The gradients of keys and values sum over queries and over the heads that share them, in one order and not unit by
// unit (`summed`).
AttentionFactors attention_factors(RuleWriter& rule, const OpQuery& q, const AttentionShape& s, bool summed) {
  return {rule.factor(s.batch), rule.factor(s.key_heads), rule.factor(s.repeat(), summed),
          rule.factor(s.queries, summed || q.attributes().flag("causal"))};
}
void tie_query(RuleWriter& rule, bool input, int i, const AttentionFactors& f) {
  const auto tie = [&](int d, const std::vector<int>& factors) {
    input ? rule.input(i, d, factors) : rule.output(i, d, factors);
  };
  tie(0, {f.batch});
  tie(1, {f.head, f.repeat});
  tie(2, {f.query});
}
void tie_key(RuleWriter& rule, bool input, int i, const AttentionFactors& f) {
  const auto tie = [&](int d, const std::vector<int>& factors) {
    input ? rule.input(i, d, factors) : rule.output(i, d, factors);
  };
  tie(0, {f.batch});
  tie(1, {f.head});
}
double attention_flops(const OpQuery& q, int q_at, double products) {
  const AttentionShape s = attention_shape(q.in(q_at).shape, q.in(q_at + 1).shape, q.in(q_at + 2).shape);
  const double pairs =
      static_cast<double>(s.batch * s.heads * s.queries * s.keys) * (q.attributes().flag("causal") ? 0.5 : 1.0);
  return products * pairs * static_cast<double>(s.depth + s.values);
}
std::vector<Option> attention_attributes() { return {{"scale", 1.0, true}, {"causal", false}, {"softcap", 0.0}}; }
}  // namespace

EPL_OP(attention) {
  return {
      .doc =
          "y = softmax(scale * q k^T + bias) v per head: q[b,h,s,d], k[b,hk,t,d], v[b,hk,t,e], bias broadcasts to "
          "[b,h,s,t] -> "
          "y[b,h,s,e], lse[b,h,s]; hk divides h. `causal` lets position i see keys 0..i; `softcap` c, if not 0, makes "
          "scores c * tanh(score / c) before the bias.",
      .signature = "q, k, v, bias? -> y, lse",
      .attributes = attention_attributes(),
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        EPL_ASSIGN(const AttentionShape s, check_attention(q, 0, 3));
        const DType type = q.in(0).dtype;
        return OutputTypes{{type, {s.batch, s.heads, s.queries, s.values}}, {type, {s.batch, s.heads, s.queries}}};
      },
      .body = attention_body,
      .gradient = attention_gradient,
      .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
        RuleWriter rule(q);
        const AttentionFactors f =
            attention_factors(rule, q, attention_shape(q.in(0).shape, q.in(1).shape, q.in(2).shape), false);
        tie_query(rule, true, 0, f);
        tie_key(rule, true, 1, f);
        tie_key(rule, true, 2, f);
        tie_query(rule, true, 3, f);
        tie_query(rule, false, 0, f);
        tie_query(rule, false, 1, f);
        return rule.done();
      },
      .flops = [](const OpQuery& q) { return attention_flops(q, 0, 2.0); },
      .samples = {"f32[2,2,4,3], f32[2,2,5,3], f32[2,2,5,6] {scale=0.5}",
                  "f32[2,4,4,2], f32[2,2,4,2], f32[2,2,4,2] {scale=0.7,causal=true}",
                  "f32[2,2,4,3], f32[2,2,5,3], f32[2,2,5,2], f32[2,1,1,5] {scale=0.5}",
                  "f32[2,4,4,3], f32[2,2,5,3], f32[2,2,5,2], f32[1,4,4,5] {scale=0.5}",
                  "f32[2,2,3,2], f32[2,1,3,2], f32[2,1,3,2] {scale=1.0,softcap=1.5,causal=true}"}};
}

EPL_OP(attention_grad) {
  return {
      .doc =
          "Gradients of attention's q, k and v from its results y and lse. Rows whose lse is beyond 512 in magnitude "
          "are "
          "divided by the sum of their weights again, because such an lse is not precise enough.",
      .signature = "dy, q, k, v, y, lse, bias? -> dq, dk, dv",
      .attributes = attention_attributes(),
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        EPL_ASSIGN(const AttentionShape s, check_attention(q, 1, 6));
        EPL_TRY(expect_shape(q, 0, {s.batch, s.heads, s.queries, s.values}, "dy"));
        EPL_TRY(expect_shape(q, 4, {s.batch, s.heads, s.queries, s.values}, "y"));
        EPL_TRY(expect_shape(q, 5, {s.batch, s.heads, s.queries}, "lse"));
        return OutputTypes{q.in(1), q.in(2), q.in(3)};
      },
      .body = attention_grad_body,
      .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
        RuleWriter rule(q);
        const AttentionFactors f =
            attention_factors(rule, q, attention_shape(q.in(1).shape, q.in(2).shape, q.in(3).shape), true);
        for (int i : {0, 1, 4, 5, 6}) tie_query(rule, true, i, f);
        for (int i : {2, 3}) tie_key(rule, true, i, f);
        tie_query(rule, false, 0, f);
        tie_key(rule, false, 1, f);
        tie_key(rule, false, 2, f);
        return rule.done();
      },
      .flops = [](const OpQuery& q) { return attention_flops(q, 1, 5.0); },
      .samples = {"f32[2,2,4,6], f32[2,2,4,3], f32[2,2,5,3], f32[2,2,5,6], f32[2,2,4,6], f32[2,2,4](2..3) {scale=0.5}",
                  "f32[2,4,4,2], f32[2,4,4,2], f32[2,2,4,2], f32[2,2,4,2], f32[2,4,4,2], f32[2,4,4](2..3) "
                  "{scale=0.7,causal=true}",
                  "f32[2,2,4,2], f32[2,2,4,3], f32[2,2,5,3], f32[2,2,5,2], f32[2,2,4,2], f32[2,2,4](2..3), "
                  "f32[2,1,1,5] {scale=0.5}",
                  "f32[2,2,4,2], f32[2,2,4,3], f32[2,2,5,3], f32[2,2,5,2], f32[2,2,4,2], f32[2,2,4](-600..-450), "
                  "f32[2,1,1,5](-560..-559) {scale=0.5}"}};
}

}  // namespace epl
