#include "core/rewrite/attention_mask.h"

#include <algorithm>
#include <cmath>

namespace epl::rewrite {
namespace {

// Scores this far below the others have no weight in a softmax of floats.
constexpr double surely_hidden = -9999;

std::optional<MaskedScores> selected(const Match& m, Value value, const Node& where) {
  for (int which : {1, 2}) {
    const Value scores = where.inputs[which];
    double hidden;
    if (!m.constant(where.inputs[3 - which], &hidden) || m.type(scores) != m.type(value)) continue;
    if (!(hidden <= surely_hidden)) continue;
    return MaskedScores{scores, {.values = where.inputs[0], .selects = true, .keeps = which == 1, .hidden = hidden}};
  }
  return std::nullopt;
}

// The operand that is a mask: it is a constant, or broadcasts to the scores, or has nothing to do with a product.
bool leads_to_a_product(const Match& m, Value value) {
  double factor = 1;
  for (int depth = 0; depth < 8; ++depth) {
    const Node* node = m.producer(value);
    if (!node) return false;
    if (node->op->name == "matmul") return true;
    if (node->op->name == "where") {
      const Value yes = node->inputs[1];
      value = m.constant(yes, &factor) ? node->inputs[2] : yes;
    } else if (node->op->name == "add") {
      const bool first = leads_to_a_product(m, node->inputs[0]);
      value = node->inputs[first ? 0 : 1];
    } else if (node->op->name == "mul") {
      value = node->inputs[m.constant(node->inputs[0], &factor) ? 1 : 0];
    } else if (node->op->name == "div" || node->op->name == "tanh") {
      value = node->inputs[0];
    } else {
      return false;
    }
  }
  return false;
}

// Whether position (i, j) of a constant mask hides the score, or nothing where the mask is no plain one.
std::optional<bool> hides(const Mask& mask, const Tensor& data, int64_t at) {
  const double value = data.get(at);
  if (mask.selects) return (value != 0) != mask.keeps;
  if (value == 0) return false;
  if (value <= surely_hidden) return true;
  return std::nullopt;
}

bool is_causal(const Match& m, const Mask& mask, int64_t queries, int64_t keys) {
  const ValueInfo& info = m.graph().value(mask.values);
  if (info.kind != ValueKind::constant || info.data.empty() || info.type.ndim() < 2) return false;
  if (info.type.dim(-2) != queries || info.type.dim(-1) != keys) return false;
  for (int64_t at = 0; at < info.type.elements(); ++at) {
    const int64_t i = at / keys % queries, j = at % keys;
    const auto hidden = hides(mask, info.data, at);
    if (!hidden || *hidden != (j > i)) return false;
  }
  return true;
}

// Whether a mask that is added can hold minus infinity.
bool may_be_infinite(const Match& m, Value value, int depth) {
  const ValueInfo& info = m.graph().value(value);
  if (!is_float(info.type.dtype)) return false;
  if (info.kind == ValueKind::constant) {
    for (int64_t i = 0; i < info.data.elements(); ++i) {
      if (!std::isfinite(info.data.get(i))) return true;
    }
    return false;
  }
  const Node* node = m.producer(value);
  if (!node || depth == 16) return true;
  const std::string& op = node->op->name;
  const auto operand = [&](int i) { return may_be_infinite(m, node->inputs[i], depth + 1); };
  if (op == "where") return operand(1) || operand(2);
  const std::vector<std::string> moves = {"cast", "reshape", "transpose", "broadcast_to", "slice", "gather"};
  if (std::ranges::find(moves, op) != moves.end()) return operand(0);
  // (1 - mask) * lowest: the product of a truth value and a number stays finite.
  double number;
  if (op == "sub" || op == "mul") {
    const bool by_number = m.constant(node->inputs[0], &number) || m.constant(node->inputs[1], &number);
    return !by_number || operand(0) || operand(1);
  }
  return true;
}

// A constant whose leading dimensions repeat the same matrix needs it only once.
Tensor without_repeats(const Tensor& data) {
  const int ndim = data.type().ndim();
  if (ndim < 3) return data;
  const int64_t matrix = data.type().dim(-2) * data.type().dim(-1);
  if (matrix == 0 || data.elements() == matrix) return data;
  for (int64_t i = matrix; i < data.elements(); ++i) {
    const double a = data.get(i), b = data.get(i % matrix);
    if (a != b) return data;
  }
  Tensor one({data.dtype(), {data.type().dim(-2), data.type().dim(-1)}});
  for (int64_t i = 0; i < matrix; ++i) one.set(i, data.get(i));
  return one;
}

}  // namespace

std::optional<MaskedScores> masked_scores(const Match& m, Value value) {
  if (const Node* where = m.producer(value, "where")) return selected(m, value, *where);
  const Node* sum = m.producer(value, "add");
  if (!sum) return std::nullopt;
  for (int which : {0, 1}) {
    const Value scores = sum->inputs[which];
    if (m.type(scores) != m.type(value) || !leads_to_a_product(m, scores)) continue;
    return MaskedScores{scores, {.values = sum->inputs[1 - which]}};
  }
  return std::nullopt;
}

bool remove_causal(const Match& m, std::vector<Mask>& masks, int64_t queries, int64_t keys) {
  return std::erase_if(masks, [&](const Mask& mask) { return is_causal(m, mask, queries, keys); }) > 0;
}

namespace {

bool may_hide_a_key(const Match& m, const Mask& mask) {
  return mask.selects ? std::isinf(mask.hidden) : may_be_infinite(m, mask.values, 0);
}

bool hides_a_row(const Match& m, const Mask& mask) {
  const ValueInfo& info = m.graph().value(mask.values);
  const bool known = info.kind == ValueKind::constant && info.type.ndim() > 0;
  if (!known) return may_hide_a_key(m, mask);
  const int64_t keys = info.type.dim(-1);
  for (int64_t row = 0; row < info.type.elements(); row += keys) {
    bool sees = false;
    for (int64_t j = row; j < row + keys; ++j) {
      const double value = info.data.get(j);
      const bool finite = mask.selects ? (value != 0) == mask.keeps || std::isfinite(mask.hidden) : std::isfinite(value);
      sees = sees || finite;
    }
    if (!sees) return true;
  }
  return false;
}

}  // namespace

bool may_hide_a_row(const Match& m, const std::vector<Mask>& masks) {
  if (std::ranges::any_of(masks, [&](const Mask& mask) { return hides_a_row(m, mask); })) return true;
  // Each leaves every row a key, but together they may leave none.
  return std::ranges::count_if(masks, [&](const Mask& mask) { return may_hide_a_key(m, mask); }) > 1;
}

Var mask_bias(const Match& m, Builder& b, const GraphRewriter& now, const std::vector<Mask>& masks, int ndim) {
  Var bias;
  const DType type = m.type(m.root().inputs[0]).dtype;
  for (const Mask& mask : masks) {
    const ValueInfo& info = m.graph().value(mask.values);
    Var values = info.kind == ValueKind::constant ? b.constant(without_repeats(info.data)) : b.var(now[mask.values]);
    if (mask.selects) {
      Var shown = b.scalar(type, 0), hidden = b.scalar(type, mask.hidden);
      values = mask.keeps ? b.select(values, shown, hidden) : b.select(values, hidden, shown);
    }
    // [n, s, t] of matrices is [n, 1, s, t]; what is shorter broadcasts over batches and heads.
    Shape shape = values.shape();
    if (ndim == 3 && shape.size() == 3) shape.insert(shape.begin() + 1, 1);
    shape.insert(shape.begin(), 4 - std::min<size_t>(shape.size(), 4), 1);
    values = b.reshape(values, shape);
    bias = bias ? bias + values : values;
  }
  return bias;
}

}  // namespace epl::rewrite
