#include "core/rewrite/patterns.h"

#include <algorithm>

namespace epl::rewrite {

std::optional<Value> scaled_operand(const Match& match, Value value, double* factor) {
  double number;
  if (const Node* product = match.producer(value, "mul")) {
    for (int which : {0, 1}) {
      const auto [x, scale] = operands(*product, which);
      if (!match.constant(scale, &number) || match.type(x) != match.type(value)) continue;
      *factor *= number;
      return x;
    }
  } else if (const Node* quotient = match.producer(value, "div")) {
    if (match.constant(quotient->inputs[1], &number) && number != 0 &&
        match.type(quotient->inputs[0]) == match.type(value)) {
      *factor /= number;
      return quotient->inputs[0];
    }
  }
  return std::nullopt;
}

Value without_scale(const Match& match, Value value, double* factor) {
  while (auto operand = scaled_operand(match, value, factor)) value = *operand;
  return value;
}

std::optional<Mean> mean_of(const Match& match, Value value) {
  double factor = 1;
  const Value sum = without_scale(match, value, &factor);
  const Node* node = match.producer(sum, "sum");
  if (!node || !node->attributes.flag("keep")) return std::nullopt;
  const TensorType& type = match.type(node->inputs[0]);
  const Ints& axes = node->attributes.ints("axes");
  if (axes.empty()) return std::nullopt;
  std::vector<bool> summed(type.ndim(), false);
  for (int64_t axis : axes) summed[axis < 0 ? axis + type.ndim() : axis] = true;
  const int first = static_cast<int>(std::ranges::find(summed, true) - summed.begin());
  double count = 1;
  for (int d = first; d < type.ndim(); ++d) {
    if (!summed[d]) return std::nullopt;
    count *= static_cast<double>(type.shape[d]);
  }
  if (!near(factor * count, 1)) return std::nullopt;
  return Mean{node->inputs[0], first};
}

std::optional<Value> square_of(const Match& match, Value value) {
  double exponent;
  if (const Node* power = match.producer(value, "pow")) {
    if (match.constant(power->inputs[1], &exponent) && exponent == 2 &&
        match.type(power->inputs[0]) == match.type(value)) {
      return power->inputs[0];
    }
  } else if (const Node* product = match.producer(value, "mul")) {
    if (product->inputs[0] == product->inputs[1]) return product->inputs[0];
  }
  return std::nullopt;
}

std::optional<Deviation> deviation(const Match& match, Value value) {
  Value sum;
  double exponent;
  if (const Node* root = match.producer(value, "sqrt")) {
    sum = root->inputs[0];
  } else if (const Node* power = match.producer(value, "pow");
             power && match.constant(power->inputs[1], &exponent) && exponent == 0.5) {
    sum = power->inputs[0];
  }
  const Node* node = match.producer(sum, "add");
  if (!node) return std::nullopt;
  for (int which : {0, 1}) {
    const auto [mean_square, epsilon] = operands(*node, which);
    double number;
    if (match.constant(epsilon, &number) && number >= 0 && match.type(mean_square) == match.type(sum)) {
      return Deviation{mean_square, number};
    }
  }
  return std::nullopt;
}

std::optional<Deviation> inverse_deviation(const Match& match, Value value) {
  double number;
  if (const Node* reciprocal = match.producer(value, "reciprocal")) return deviation(match, reciprocal->inputs[0]);
  if (const Node* quotient = match.producer(value, "div")) {
    if (match.constant(quotient->inputs[0], &number) && number == 1) return deviation(match, quotient->inputs[1]);
  }
  const Node* power = match.producer(value, "pow");
  if (!power || !match.constant(power->inputs[1], &number)) return std::nullopt;
  if (match.type(power->inputs[0]) != match.type(value)) return std::nullopt;
  if (number == -1) return deviation(match, power->inputs[0]);
  const Node* sum = number == -0.5 ? match.producer(power->inputs[0], "add") : nullptr;
  if (!sum) return std::nullopt;
  for (int which : {0, 1}) {
    const auto [mean_square, epsilon] = operands(*sum, which);
    if (match.constant(epsilon, &number) && number >= 0 && match.type(mean_square) == match.type(value)) {
      return Deviation{mean_square, number};
    }
  }
  return std::nullopt;
}

namespace {

Polynomial plus(const Polynomial& a, const Polynomial& b, double sign) {
  Polynomial sum;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = a[i] + sign * b[i];
  return sum;
}

// None where the product is of a higher degree.
std::optional<Polynomial> times(const Polynomial& a, const Polynomial& b) {
  Polynomial product{};
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < b.size(); ++k) {
      if (a[i] == 0 || b[k] == 0) continue;
      if (i + k >= product.size()) return std::nullopt;
      product[i + k] += a[i] * b[k];
    }
  }
  return product;
}

// Patterns are shallow; a deeper expression does not match any.
constexpr int max_depth = 8;

std::optional<Polynomial> polynomial(const Match& match, Value value, Value x, int depth) {
  if (value == x) return Polynomial{0, 1, 0, 0};
  double number;
  if (match.constant(value, &number)) return Polynomial{number, 0, 0, 0};
  const Node* node = match.producer(value);
  if (!node || depth == max_depth || node->inputs.size() != 2) return std::nullopt;
  const std::string& op = node->op->name;
  if (op != "add" && op != "sub" && op != "mul" && op != "div" && op != "pow") return std::nullopt;
  auto a = polynomial(match, node->inputs[0], x, depth + 1);
  if (!a) return std::nullopt;
  if (op == "pow" || op == "div") {
    if (!match.constant(node->inputs[1], &number)) return std::nullopt;
    if (op == "div") return number == 0 ? std::nullopt : times(*a, {1 / number, 0, 0, 0});
    if (number != 2 && number != 3) return std::nullopt;
    auto square = times(*a, *a);
    return number == 2 || !square ? square : times(*square, *a);
  }
  auto b = polynomial(match, node->inputs[1], x, depth + 1);
  if (!b) return std::nullopt;
  return op == "mul" ? times(*a, *b) : std::optional(plus(*a, *b, op == "add" ? 1 : -1));
}

}  // namespace

std::optional<Polynomial> polynomial_of(const Match& match, Value value, Value x) {
  if (match.type(value) != match.type(x)) return std::nullopt;
  return polynomial(match, value, x, 0);
}

bool swaps_last_two(const Ints& permutation) {
  const int64_t n = static_cast<int64_t>(permutation.size());
  if (n < 2) return false;
  for (int64_t i = 0; i < n - 2; ++i) {
    if (permutation[i] != i) return false;
  }
  return permutation[n - 2] == n - 1 && permutation[n - 1] == n - 2;
}

Var swapped(const Match& match, Builder& builder, const GraphRewriter& now, Value value) {
  Ints permutation;
  if (const Node* transpose = match.producer(value, "transpose")) {
    permutation = transpose->attributes.ints("perm");
    value = transpose->inputs[0];
  } else {
    for (int d = 0; d < match.type(value).ndim(); ++d) permutation.push_back(d);
  }
  std::swap(permutation[permutation.size() - 2], permutation.back());
  return builder.transpose(builder.var(now[value]), std::move(permutation));
}

}  // namespace epl::rewrite
