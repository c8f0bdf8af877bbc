// Attention out of products, scales, masks and a softmax, as the exporters of PyTorch write it: the scale on the
// scores, on the queries, or its root on both operands; masks added or selected; keys and values repeated for grouped
// queries.
#include <limits>

#include "core/rewrite/attention_mask.h"
#include "core/rewrite/patterns.h"

namespace epl {
using namespace rewrite;

namespace {

// softmax(scale * q k^T + masks) v, as found.
struct Found {
  Value q, k, v;
  bool k_is_transposed = false;  // k is [..., d, t]
  double scale = 1, softcap = 0;
  std::vector<Mask> masks;    // outermost first
  bool zero_for_nan = false;  // rows without any key are zero instead of NaN
};

// where(is_nan(p), 0, p): exporters guard rows in which every key is masked.
std::optional<Value> guarded(const Match& m, Value value) {
  const Node* where = m.producer(value, "where");
  const Node* test = where ? m.producer(where->inputs[0], "is_nan") : nullptr;
  double zero;
  if (!test || !m.constant(where->inputs[1], &zero) || zero != 0 || test->inputs[0] != where->inputs[2])
    return std::nullopt;
  if (!m.used_once(value) || m.uses(where->inputs[2]) != 2) return std::nullopt;
  return where->inputs[2];
}

// scores = c * tanh(scale / c * x): x.
std::optional<Value> uncapped(const Match& m, Value scores, double* cap, double* scale) {
  double outer = 1, inner = 1;
  const Value soft = without_scale(m, scores, &outer);
  const Node* tanh = soft != scores && m.used_once(soft) ? m.producer(soft, "tanh") : nullptr;
  if (!tanh || !m.used_once(tanh->inputs[0])) return std::nullopt;
  const Value x = without_scale(m, tanh->inputs[0], &inner);
  *cap = outer;
  *scale *= inner * outer;
  return x;
}

// From the probabilities down to the product of queries and keys. Whatever lies between is used by nothing else.
bool take_scores_apart(const Match& m, Value p, Found& found) {
  if (auto inner = guarded(m, p)) {
    found.zero_for_nan = true;
    p = *inner;
  } else if (!m.used_once(p)) {
    return false;
  }
  const Node* softmax = m.producer(p, "softmax");
  const int ndim = m.type(p).ndim();
  if (!softmax || OpQuery(*softmax->op, softmax->attributes, {}).axis("axis", ndim) != ndim - 1) return false;
  Value scores = softmax->inputs[0];
  while (auto masked = masked_scores(m, scores)) {
    if (!m.used_once(scores)) return false;
    found.masks.push_back(masked->mask);
    scores = masked->scores;
  }
  if (auto inner = uncapped(m, scores, &found.softcap, &found.scale)) {
    if (!m.used_once(scores)) return false;
    scores = *inner;
  }
  while (true) {
    if (!m.used_once(scores)) return false;
    auto operand = scaled_operand(m, scores, &found.scale);
    if (!operand) break;
    scores = *operand;
  }
  const Node* product = m.producer(scores, "matmul");
  if (!product || product->attributes.flag("transpose_a")) return false;
  found.q = without_scale(m, product->inputs[0], &found.scale);
  found.k = without_scale(m, product->inputs[1], &found.scale);
  found.k_is_transposed = !product->attributes.flag("transpose_b");
  return true;
}

// Keys or values [b, hk * r, t, d] that repeat each of hk heads r times.
struct Repeated {
  Value source;  // [b, hk, 1, t, d]
  int64_t times = 1;
};
std::optional<Repeated> repeated(const Match& m, Value value) {
  const Node* merge = m.producer(value, "reshape");
  const TensorType& merged = m.type(value);
  if (!merge || merged.ndim() != 4) return std::nullopt;
  const Node* copies = m.producer(merge->inputs[0]);
  if (!copies || (copies->op->name != "broadcast_to" && copies->op->name != "tile")) return std::nullopt;
  const Shape& many = m.type(merge->inputs[0]).shape;
  const Shape& one = m.type(copies->inputs[0]).shape;
  if (many.size() != 5 || one.size() != 5 || one[2] != 1) return std::nullopt;
  for (int d : {0, 1, 3, 4}) {
    if (one[d] != many[d]) return std::nullopt;
  }
  if (merged.shape != Shape{many[0], many[1] * many[2], many[3], many[4]}) return std::nullopt;
  return Repeated{copies->inputs[0], many[2]};
}

// The operand in the old graph, if k comes out of a transpose that only exchanges the last two dimensions.
std::optional<Value> transposed_source(const Match& m, Value value) {
  const Node* transpose = m.producer(value, "transpose");
  if (!transpose || !swaps_last_two(transpose->attributes.ints("perm"))) return std::nullopt;
  return transpose->inputs[0];
}

class Emitter {
 public:
  Emitter(const Match& match, Builder& builder, const GraphRewriter& now)
      : m_(match), b_(builder), now_(now), name_(builder.scope()) {}

  // `guard`: rows without any key are zero. `uniform`: rows in which every key is hidden weigh all keys equally.
  std::vector<Var> emit(const Found& found, bool causal, bool guard, bool uniform) {
    scope(".keys");
    Var k = keys(found);
    scope(".queries");
    Var q = as_heads(b_.var(now_[found.q]));
    scope(".values");
    Var v = repeated_v_ ? heads_of(*repeated_v_) : as_heads(b_.var(now_[found.v]));
    scope(".mask");
    Var bias = mask_bias(m_, b_, now_, found.masks, is_flat() ? 3 : 4);
    // Rows that see no key have no bias, so that attention is not NaN there. With the guard their result is not taken;
    // else their queries are zero, and so are their scores and the gradients of these.
    Var shows;
    if (bias && (guard || uniform)) {
      const double bound = uniform ? found.masks[0].hidden : -std::numeric_limits<double>::infinity();
      shows = b_.max_along(bias, {3}) > bound;
      bias = b_.select(shows, bias, b_.like(bias, 0));
      if (uniform) q = b_.select(shows, q, b_.like(q, 0));
    }
    b_.set_scope(name_);
    std::vector<Var> inputs = {q, k, v};
    if (bias) inputs.push_back(bias);
    Var y =
        b_.emit_all("attention", inputs, {{"scale", found.scale}, {"causal", causal}, {"softcap", found.softcap}})[0];
    scope(".merged");
    if (shows && guard) y = b_.select(shows, y, b_.like(y, 0));
    y = b_.reshape(y, m_.type(m_.root().outputs[0]).shape);
    b_.set_scope(name_);
    return {y};
  }

  // Decides how keys and values are read; false if the shapes are not those of an attention.
  bool choose_layout(const Found& found) {
    const TensorType &q = m_.type(found.q), &v = m_.type(found.v);
    Shape k = m_.type(found.k).shape;
    const size_t n = k.size();
    if ((n != 3 && n != 4) || q.ndim() != static_cast<int>(n) || v.ndim() != static_cast<int>(n)) return false;
    if (found.k_is_transposed) std::swap(k[n - 2], k[n - 1]);
    for (size_t d = 0; d + 2 < n; ++d) {
      if (q.shape[d] != k[d] || v.shape[d] != k[d]) return false;
    }
    if (q.shape[n - 1] != k[n - 1] || v.shape[n - 2] != k[n - 2]) return false;
    const auto straight = found.k_is_transposed ? transposed_source(m_, found.k) : std::optional(found.k);
    if (straight) repeated_k_ = repeated(m_, *straight);
    repeated_v_ = repeated(m_, found.v);
    if (!repeated_k_ || !repeated_v_ || repeated_k_->times != repeated_v_->times) {
      repeated_k_.reset();
      repeated_v_.reset();
    }
    return true;
  }

 private:
  void scope(const char* part) { b_.set_scope(cat(name_, part)); }
  bool is_flat() const { return m_.type(m_.root().outputs[0]).ndim() == 3; }
  Var heads_of(const Repeated& repeated) {
    Var x = b_.var(now_[repeated.source]);
    return b_.reshape(x, {x.dim(0), x.dim(1), x.dim(3), x.dim(4)});
  }
  // Matrices [n, s, d] count as n batches of one head.
  Var as_heads(const Var& x) { return x.ndim() == 4 ? x : b_.reshape(x, {x.dim(0), 1, x.dim(1), x.dim(2)}); }
  Var keys(const Found& found) {
    if (repeated_k_) return heads_of(*repeated_k_);
    return as_heads(found.k_is_transposed ? swapped(m_, b_, now_, found.k) : b_.var(now_[found.k]));
  }

  const Match& m_;
  Builder& b_;
  const GraphRewriter& now_;
  std::string name_;
  std::optional<Repeated> repeated_k_, repeated_v_;
};

std::vector<Var> apply(const Match& m, Builder& b, const GraphRewriter& now) {
  const Node& root = m.root();
  if (root.attributes.flag("transpose_a") || root.attributes.flag("transpose_b")) return {};
  Found found{.v = root.inputs[1]};
  if (!take_scores_apart(m, root.inputs[0], found)) return {};
  Emitter emitter(m, b, now);
  if (!emitter.choose_layout(found)) return {};
  const TensorType& scores = m.type(root.inputs[0]);
  const int64_t queries = scores.dim(-2), keys = scores.dim(-1);
  const HiddenRows hidden = hidden_rows(m, found.masks, queries, keys);
  if (hidden == HiddenRows::mixed) return {};
  const bool uniform = hidden == HiddenRows::uniform,
             guard = found.zero_for_nan && may_be_nan(m, found.masks, queries, keys);
  // All masks together say which rows are hidden, so a causal mask stays among them.
  const bool causal = !guard && !uniform && remove_causal(m, found.masks, queries, keys);
  return emitter.emit(found, causal, guard, uniform);
}

}  // namespace

EPL_REWRITE(attention) {
  return {
      .doc =
          "softmax(scale * q k^T + masks) v is attention(q, k, v, bias), `causal` where a mask is exactly that, with "
          "fewer key heads where keys and values are repeated.",
      .root_op = "matmul",
      .after = {"softmax"},
      .apply = apply};
}

}  // namespace epl
