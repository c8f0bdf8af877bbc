// Attention and what goes with it. Masks of truth values, windows and lengths are joined into one set of allowed keys;
// a query that may see no key gets zeros, as the standard says.
#include <cmath>
#include <limits>

#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"
#include "frontends/onnx/ops/types.h"

namespace epl::onnx {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

class AttentionImport {
 public:
  explicit AttentionImport(Import& i) : i_(i), b_(i.b) {}

  void run() {
    if (!read_operands()) return;
    const DType as = q_.dtype();
    const Var keys = k_, values = v_;
    widen();
    read_mask();
    double scale = i_.number("scale", 1.0 / std::sqrt(static_cast<double>(q_.dim(3)))), cap = i_.number("softcap", 0);
    bool causal = i_.integer("is_causal", 0) != 0;
    bool window = i_.integer("left_window_size", -1) >= 0 || i_.integer("right_window_size", -1) >= 0;
    bool plain_causal = causal && !truth_ && !i_.has(6) && past_ == 0 && !window;
    // What a mask of numbers hides is only known beside what all others hide.
    const bool may_hide = bias_ && !is_finite(i_.constant(3));
    plain_causal = plain_causal && !may_hide;
    if ((causal && !plain_causal) || window || truth_ || i_.has(6)) allow_keys(causal);
    if (may_hide && b_.status().ok()) show_hidden_queries();
    if (!b_.status().ok()) return;
    std::vector<Var> operands = {q_, k_, v_};
    if (bias_) operands.push_back(bias_);
    Var y = b_.emit("attention", operands, {{"scale", scale}, {"causal", plain_causal}, {"softcap", cap}});
    if (sees_) y = b_.select(sees_, y, b_.like(y, 0));
    set_result(b_.cast(y, as));
    if (i_.wants(1)) i_.set(1, keys);
    if (i_.wants(2)) i_.set(2, values);
    if (i_.wants(3)) i_.set(3, b_.cast(shown_scores(scale, cap, plain_causal), as));
  }

 private:
  // [batch, positions, heads * depth] as [batch, heads, positions, depth].
  Var heads(const Var& x, int64_t count) {
    if (x.ndim() == 4) return x;
    if (x.ndim() != 3 || count < 1 || x.dim(2) % count != 0) {
      i_.fail(cat(x.type().text(), " does not divide into ", count, " heads"));
      return {};
    }
    return b_.transpose(b_.reshape(x, {x.dim(0), x.dim(1), count, x.dim(2) / count}), {0, 2, 1, 3});
  }

  bool read_operands() {
    flat_ = i_.type(0).ndim() == 3;
    q_ = heads(i_.in(0), i_.integer("q_num_heads", 0));
    k_ = heads(i_.in(1), i_.integer("kv_num_heads", 0));
    v_ = heads(i_.in(2), i_.integer("kv_num_heads", 0));
    if (q_ && k_ && v_ && i_.has(4) && i_.has(5)) {
      past_ = i_.type(4).ndim() == 4 ? i_.type(4).dim(2) : 0;
      k_ = b_.concat({i_.in(4), k_}, 2);
      v_ = b_.concat({i_.in(5), v_}, 2);
    }
    return q_ && k_ && v_ && b_.status().ok();
  }

  // Values and a mask may have other types. In the widest one the lowest number of a mask is not an infinity, which
  // would make NaN of a query that it hides every key from.
  void widen() {
    DType type = real_type(q_.dtype(), v_.dtype());
    if (i_.has(3) && i_.type(3).dtype != DType::boolean) type = real_type(type, i_.type(3).dtype);
    for (Var* v : {&q_, &k_, &v_}) *v = b_.cast(*v, type);
  }

  // The mask with four dimensions and all keys; those it does not name are hidden.
  void read_mask() {
    if (!i_.has(3)) return;
    Var mask = i_.in(3);
    Shape shape = mask.shape();
    while (shape.size() < 4) shape.insert(shape.begin(), 1);
    mask = b_.reshape(mask, shape);
    bool truth = mask.dtype() == DType::boolean;
    if (int64_t more = k_.dim(2) - mask.dim(3); more > 0 && mask.dim(3) > 1) {
      if (truth) mask = b_.cast(mask, DType::u8);
      mask = b_.emit("pad", {mask, b_.scalar(mask.dtype(), truth ? 0 : minus_infinity)},
                     {{"mode", std::string("constant")}, {"begin", Ints{0, 0, 0, 0}}, {"end", Ints{0, 0, 0, more}}});
      if (truth) mask = b_.cast(mask, DType::boolean);
    }
    (truth ? truth_ : bias_) = truth ? mask : b_.cast(mask, q_.dtype());
  }

  // Joins what hides keys into `bias_`; `sees_` tells queries that see one from those that see none.
  void allow_keys(bool causal) {
    int64_t queries = q_.dim(2), keys = k_.dim(2), left = i_.integer("left_window_size", -1),
            right = i_.integer("right_window_size", -1);
    if (causal) right = right < 0 ? 0 : std::min<int64_t>(right, 0);
    Var allowed = truth_;
    auto join = [&](const Var& more) { allowed = allowed ? b_.emit("logical_and", {allowed, more}) : more; };
    Var key = b_.reshape(positions(keys), {1, 1, 1, keys}), query = b_.reshape(positions(queries), {1, 1, queries, 1});
    Var offset = b_.scalar(DType::i64, static_cast<double>(past_));
    if (i_.has(6)) {
      Var lengths = b_.reshape(b_.cast(i_.in(6), DType::i64), {i_.type(6).elements(), 1, 1, 1});
      join(key < lengths);
      offset = lengths - static_cast<double>(queries);
    }
    if (left >= 0) join(key >= query + offset - static_cast<double>(left));
    if (right >= 0) join(key <= query + offset + static_cast<double>(right));
    Var any = b_.cast(b_.max_along(b_.cast(allowed, DType::u8), {3}), DType::boolean);
    Var hidden = b_.select(allowed, b_.scalar(q_.dtype(), 0), b_.scalar(q_.dtype(), minus_infinity));
    hidden = b_.select(any, hidden, b_.scalar(q_.dtype(), 0));
    bias_ = bias_ ? bias_ + hidden : hidden;
    sees_ = any;
  }

  static bool is_finite(const epl::Tensor* mask) {
    for (int64_t k = 0; mask && k < mask->elements(); ++k) {
      if (!std::isfinite(mask->get(k))) return false;
    }
    return mask != nullptr;
  }

  // A query to which numbers hide every key gets zeros as well, and its scores no bias, so that they are finite.
  void show_hidden_queries() {
    const Var any = b_.max_along(bias_, {3}) > minus_infinity;
    bias_ = b_.select(any, bias_, b_.like(bias_, 0));
    sees_ = sees_ ? b_.emit("logical_and", {sees_, any}) : any;
  }

  Var positions(int64_t count) {
    if (count > (int64_t{1} << 24)) {
      i_.fail(cat("a mask over ", count, " positions"));
      return {};
    }
    epl::Tensor at({DType::i64, {count}});
    for (int64_t k = 0; k < count; ++k) at.set_int(k, k);
    return b_.constant(at);
  }

  void set_result(const Var& y) {
    if (!flat_) return i_.set(0, y);
    i_.set(0, b_.reshape(b_.transpose(y, {0, 2, 1, 3}), {y.dim(0), y.dim(2), y.dim(1) * y.dim(3)}));
  }

  // The scores, for the rare model that wants to see them: raw, capped, with the bias, or as probabilities.
  Var shown_scores(double scale, double cap, bool plain_causal) {
    int64_t mode = i_.integer("qk_matmul_output_mode", 0), batch = q_.dim(0), groups = k_.dim(1);
    Var grouped = b_.reshape(q_, {batch, groups, q_.dim(1) / std::max<int64_t>(groups, 1), q_.dim(2), q_.dim(3)});
    Var scores = b_.matmul(grouped, b_.reshape(k_, {batch, groups, 1, k_.dim(2), k_.dim(3)}), false, true) * scale;
    scores = b_.reshape(scores, {batch, q_.dim(1), q_.dim(2), k_.dim(2)});
    if (mode >= 1 && cap != 0) scores = b_.tanh(scores * (1 / cap)) * cap;
    if (mode >= 2 && plain_causal) {
      Var key = b_.reshape(positions(k_.dim(2)), {1, 1, 1, k_.dim(2)}),
          query = b_.reshape(positions(q_.dim(2)), {1, 1, q_.dim(2), 1});
      scores = b_.select(key <= query, scores, b_.like(scores, minus_infinity));
    }
    if (mode >= 2 && sees_) scores = b_.select(sees_, scores + bias_, b_.like(scores, mode == 2 ? minus_infinity : 0));
    if (mode >= 2 && !sees_ && bias_) scores = scores + bias_;
    if (mode < 3) return scores;
    Var shares = b_.emit("softmax", {scores}, {{"axis", int64_t{3}}});
    return sees_ ? b_.select(sees_, shares, b_.like(shares, 0)) : shares;
  }

  Import& i_;
  Builder& b_;
  Var q_, k_, v_, truth_, bias_, sees_;
  bool flat_ = false;
  int64_t past_ = 0;
};

}  // namespace

EPL_ONNX_OP(Attention) {
  return {.run = [](Import& i) { AttentionImport(i).run(); }};
}

// Pairs of elements turned by an angle that grows with the position (Su et al., 2021).
EPL_ONNX_OP(RotaryEmbedding) {
  return {.run = [](Import& i) {
    Builder& b = i.b;
    Var x = i.in(0), cosine = i.in(1), sine = i.in(2);
    bool flat = x.ndim() == 3, interleaved = i.integer("interleaved", 0) != 0;
    int64_t heads = i.integer("num_heads", 0), turned = i.integer("rotary_embedding_dim", 0);
    if (flat) {  // [batch, positions, heads * depth]
      if (heads < 1 || x.dim(2) % heads != 0)
        return i.fail(cat(x.type().text(), " does not divide into ", heads, " heads"));
      x = b.transpose(b.reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads}), {0, 2, 1, 3});
    }
    int64_t batch = x.dim(0), count = x.dim(1), positions = x.dim(2), depth = x.dim(3);
    if (turned == 0) turned = depth;
    if (turned % 2 != 0 || turned > depth)
      return i.fail(cat("rotary_embedding_dim ", turned, " does not fit ", x.type().text()));
    if (i.has(3)) {
      cosine = b.emit("gather", {cosine, i.in(3)}, {{"axis", int64_t{0}}});
      sine = b.emit("gather", {sine, i.in(3)}, {{"axis", int64_t{0}}});
    }
    int64_t half = turned / 2;
    auto table = [&](Var t) {
      if (t.dim(-1) != half) t = b.slice(t, {t.ndim() - 1}, {0}, {half});
      return b.reshape(t, {t.ndim() == 3 ? t.dim(0) : 1, 1, positions, half});
    };
    cosine = table(cosine);
    sine = table(sine);
    Var rest, first, second, part = x;
    if (turned < depth) {
      part = b.slice(x, {3}, {0}, {turned});
      rest = b.slice(x, {3}, {turned}, {depth});
    }
    if (interleaved) {
      Var pairs = b.reshape(part, {batch, count, positions, half, 2});
      first = b.reshape(b.slice(pairs, {4}, {0}, {1}), {batch, count, positions, half});
      second = b.reshape(b.slice(pairs, {4}, {1}, {2}), {batch, count, positions, half});
    } else {
      first = b.slice(part, {3}, {0}, {half});
      second = b.slice(part, {3}, {half}, {turned});
    }
    Var real = first * cosine - second * sine, imaginary = first * sine + second * cosine, y;
    if (interleaved) {
      Shape pair = {batch, count, positions, half, 1};
      y = b.reshape(b.concat({b.reshape(real, pair), b.reshape(imaginary, pair)}, 4),
                    {batch, count, positions, turned});
    } else {
      y = b.concat({real, imaginary}, 3);
    }
    if (rest) y = b.concat({y, rest}, 3);
    i.set(0, flat ? b.reshape(b.transpose(y, {0, 2, 1, 3}), {batch, positions, count * depth}) : y);
  }};
}

}  // namespace epl::onnx
