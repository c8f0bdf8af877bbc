#include "core/rewrite/attention_mask.h"

#include <algorithm>
#include <cmath>

namespace epl::rewrite {
namespace {

// A score at or below this is masked. -1e9 is: float32 has steps of 64 there, so a softmax of such scores would mean
// nothing. -1e5 is not, though some models fill with it: real scores can be that low. f16 does not reach -1e9; its
// lowest number stands for it.
double surely_hidden(DType type) { return type == DType::f16 ? -65504 : -1e9; }

std::optional<MaskedScores> selected(const Match& m, Value value, const Node& where) {
  for (int which : {1, 2}) {
    const Value scores = where.inputs[which];
    double hidden;
    if (!m.constant(where.inputs[3 - which], &hidden) || m.type(scores) != m.type(value)) continue;
    if (!(hidden <= surely_hidden(m.type(value).dtype))) continue;
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

// The number that a mask with this element adds to a score, or puts in its place.
double added(const Mask& mask, const Tensor& data, int64_t at) {
  const double value = data.get(at);
  if (!mask.selects) return value;
  return (value != 0) == mask.keeps ? 0 : mask.hidden;
}

enum class Causal { no, finite, infinite };
Causal causal_kind(const Match& m, const Mask& mask, int64_t queries, int64_t keys) {
  const ValueInfo& info = m.graph().value(mask.values);
  if (info.kind != ValueKind::constant || info.data.empty() || info.type.ndim() < 2) return Causal::no;
  if (info.type.dim(-2) != queries || info.type.dim(-1) != keys) return Causal::no;
  const double hidden = surely_hidden(m.type(m.root().inputs[0]).dtype);
  Causal kind = Causal::infinite;
  for (int64_t at = 0; at < info.type.elements(); ++at) {
    const int64_t i = at / keys % queries, j = at % keys;
    const double value = added(mask, info.data, at);
    if (j > i ? !(value <= hidden) : value != 0) return Causal::no;
    if (j > i && std::isfinite(value)) kind = Causal::finite;
  }
  return kind;
}

// Whether a mask that is added can hold minus infinity, or, as one of several, numbers so low that two of them make it.
bool may_be_lowest(const Match& m, Value value, bool one_of_several, int depth = 0) {
  const ValueInfo& info = m.graph().value(value);
  if (!is_float(info.type.dtype)) return false;
  if (info.kind == ValueKind::constant) {
    const double low = info.type.dtype == DType::f16 ? -1e4 : -1e38;
    for (int64_t i = 0; i < info.data.elements(); ++i) {
      const double value = info.data.get(i);
      if (!std::isfinite(value) || (one_of_several && value < low)) return true;
    }
    return false;
  }
  const Node* node = m.producer(value);
  if (!node || depth == 16) return true;
  const std::string& op = node->op->name;
  const auto operand = [&](int i) { return may_be_lowest(m, node->inputs[i], one_of_several, depth + 1); };
  if (op == "where") return operand(1) || operand(2);
  const std::vector<std::string> moves = {"reshape", "transpose", "broadcast_to", "slice", "gather"};
  if (std::ranges::find(moves, op) != moves.end()) return operand(0);
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

namespace {

// Whether constant masks, all together, leave each row a key on which they put nothing that hides. False where not
// known.
bool every_row_sees(const Match& m, const std::vector<Mask>& masks, int64_t queries, int64_t keys) {
  const double much = -surely_hidden(m.type(m.root().inputs[0]).dtype) / 2;
  std::vector<bool> sees(queries * keys, true);
  for (const Mask& mask : masks) {
    const ValueInfo& info = m.graph().value(mask.values);
    if (info.kind != ValueKind::constant || info.data.empty()) return false;
    const Tensor data = without_repeats(info.data);
    const Shape& shape = data.shape();
    const int ndim = data.type().ndim();
    const int64_t columns = ndim > 0 ? shape[ndim - 1] : 1, rows = ndim > 1 ? shape[ndim - 2] : 1;
    if (data.elements() != rows * columns) return false;
    for (int64_t at = 0; at < queries * keys; ++at) {
      const double value = added(mask, data, (rows == 1 ? 0 : at / keys) * columns + (columns == 1 ? 0 : at % keys));
      if (!(value <= much)) return false;  // a raised score could outweigh a key that is seen
      if (value < -much) sees[at] = false;
    }
  }
  for (int64_t row = 0; row < queries * keys; row += keys) {
    if (std::find(sees.begin() + row, sees.begin() + row + keys, true) == sees.begin() + row + keys) return false;
  }
  return true;
}

bool fills_finite(const Mask& mask) { return mask.selects && std::isfinite(mask.hidden); }

}  // namespace

HiddenRows hidden_rows(const Match& m, const std::vector<Mask>& masks, int64_t queries, int64_t keys) {
  if (std::ranges::none_of(masks, fills_finite) || every_row_sees(m, masks, queries, keys)) return HiddenRows::none;
  const auto as_first = [&](const Mask& mask) { return mask.selects && mask.hidden == masks[0].hidden; };
  return std::ranges::all_of(masks, as_first) ? HiddenRows::uniform : HiddenRows::mixed;
}

bool remove_causal(const Match& m, std::vector<Mask>& masks, int64_t queries, int64_t keys) {
  const bool always_sees = masks.size() == 1 || every_row_sees(m, masks, queries, keys);
  return std::erase_if(masks, [&](const Mask& mask) {
           const Causal kind = causal_kind(m, mask, queries, keys);
           return kind == Causal::infinite || (kind == Causal::finite && always_sees);
         }) > 0;
}

bool may_be_nan(const Match& m, const std::vector<Mask>& masks, int64_t queries, int64_t keys) {
  if (every_row_sees(m, masks, queries, keys)) return false;
  const auto can_be_infinite = [&](const Mask& mask) {
    return mask.selects ? std::isinf(mask.hidden) : may_be_lowest(m, mask.values, masks.size() > 1);
  };
  return std::ranges::any_of(masks, can_be_infinite);
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
