// Activations out of arithmetic.
#include <algorithm>
#include <numbers>

#include "core/rewrite/patterns.h"

namespace epl {
using namespace rewrite;

namespace {

// The factors of a product: what is multiplied by constants goes into `scale`. A factor that something else uses as
// well is not taken apart.
struct Product {
  std::vector<Value> factors;
  double scale = 1;
};
void collect(const Match& m, Value value, bool root, Product& product) {
  double number;
  const Node* node = root || m.used_once(value) ? m.producer(value, "mul") : nullptr;
  if (node && m.type(node->inputs[0]).shape == m.type(node->inputs[1]).shape) {
    collect(m, node->inputs[0], false, product);
    collect(m, node->inputs[1], false, product);
  } else if (auto operand = root || m.used_once(value) ? scaled_operand(m, value, &product.scale) : std::nullopt) {
    collect(m, *operand, false, product);
  } else if (m.constant(value, &number)) {
    product.scale *= number;
  } else {
    product.factors.push_back(value);
  }
}

// value = 1 + f(argument): the argument.
std::optional<Value> one_plus(const Match& m, Value value, std::string_view f) {
  const Node* sum = m.producer(value, "add");
  if (!sum || !m.used_once(value)) return std::nullopt;
  for (int which : {0, 1}) {
    const auto [y, one] = operands(*sum, which);
    double number;
    const Node* function = m.producer(y, f);
    if (function && m.used_once(y) && m.constant(one, &number) && number == 1) return function->inputs[0];
  }
  return std::nullopt;
}

bool near_all(const Polynomial& p, const Polynomial& wanted) {
  for (size_t i = 0; i < p.size(); ++i) {
    if (wanted[i] == 0 ? p[i] != 0 : !near(p[i], wanted[i])) return false;
  }
  return true;
}

// x * 0.5 * (1 + f(argument(x))).
std::vector<Var> half_product(const Match& m, Builder& b, const GraphRewriter& now, std::string_view f,
                              const Polynomial& argument, const char* approximate) {
  Product product;
  collect(m, m.root().outputs[0], true, product);
  if (product.factors.size() != 2 || !near(product.scale, 0.5)) return {};
  for (int which : {0, 1}) {
    const Value x = product.factors[which];
    const auto inner = one_plus(m, product.factors[1 - which], f);
    if (!inner || m.type(x) != m.type(m.root().outputs[0])) continue;
    const auto polynomial = polynomial_of(m, *inner, x);
    if (polynomial && near_all(*polynomial, argument)) {
      return {b.emit("gelu", {b.var(now[x])}, {{"approximate", std::string(approximate)}})};
    }
  }
  return {};
}

}  // namespace

EPL_REWRITE(gelu_erf) {
  return {.doc = "x * 0.5 * (1 + erf(x / sqrt(2))), its factors in any order, is gelu(x).",
          .root_op = "mul",
          .after = {"layer_norm_bias", "rms_norm_scale"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) {
            return half_product(m, b, now, "erf", {0, std::numbers::sqrt2 / 2, 0, 0}, "none");
          }};
}

EPL_REWRITE(gelu_tanh) {
  return {.doc =
              "x * 0.5 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), in any writing of the polynomial, is gelu(x) by "
              "tanh.",
          .root_op = "mul",
          .after = {"layer_norm_bias", "rms_norm_scale"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) {
            const double root = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
            return half_product(m, b, now, "tanh", {0, root, 0, 0.044715 * root}, "tanh");
          }};
}

EPL_REWRITE(silu) {
  return {.doc = "x * sigmoid(x) is silu(x).",
          .root_op = "mul",
          .after = {"layer_norm_bias", "rms_norm_scale"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            for (int which : {0, 1}) {
              const auto [x, gate] = operands(m.root(), which);
              const Node* sigmoid = m.producer(gate, "sigmoid");
              if (sigmoid && sigmoid->inputs[0] == x && m.used_once(gate)) return {b.emit("silu", {b.var(now[x])})};
            }
            return {};
          }};
}

EPL_REWRITE(mish) {
  return {.doc = "x * tanh(softplus(x)) is mish(x).",
          .root_op = "mul",
          .after = {"layer_norm_bias", "rms_norm_scale"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            for (int which : {0, 1}) {
              const auto [x, gate] = operands(m.root(), which);
              const Node* tanh = m.producer(gate, "tanh");
              const Node* softplus = tanh && m.used_once(gate) ? m.producer(tanh->inputs[0], "softplus") : nullptr;
              if (softplus && softplus->inputs[0] == x && m.used_once(tanh->inputs[0]))
                return {b.emit("mish", {b.var(now[x])})};
            }
            return {};
          }};
}

EPL_REWRITE(log_sigmoid) {
  return {.doc = "log(sigmoid(x)) is -softplus(-x), which stays finite where the sigmoid rounds to zero.",
          .root_op = "log",
          .after = {"layer_norm_bias", "rms_norm_scale"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            const Value s = m.root().inputs[0];
            const Node* sigmoid = m.producer(s, "sigmoid");
            if (!sigmoid || !m.used_once(s)) return {};
            b.set_scope(cat(m.root().name, ".softplus"));
            const Var softplus = b.emit("softplus", {-b.var(now[sigmoid->inputs[0]])});
            b.set_scope(m.root().name);
            return {-softplus};
          }};
}

EPL_REWRITE(softmax) {
  return {.doc = "exp(x - max(x)) / sum(exp(x - max(x))) along one dimension is softmax(x).",
          .root_op = "div",
          .after = {"identity", "cast_to_same", "reshape_chain", "transpose_chain", "batched_transpose"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            const Value e = m.root().inputs[0];
            const Node *exp = m.producer(e, "exp"), *sum = m.producer(m.root().inputs[1], "sum");
            if (!exp || !sum || sum->inputs[0] != e || m.uses(e) != 2) return {};
            const Node* difference = m.producer(exp->inputs[0], "sub");
            const Node* largest = difference ? m.producer(difference->inputs[1], "max_reduce") : nullptr;
            if (!largest || largest->inputs[0] != difference->inputs[0]) return {};
            const Value x = difference->inputs[0];
            const int ndim = m.type(x).ndim();
            const auto axis_of = [&](const Node& node) -> int64_t {
              const Ints& axes = node.attributes.ints("axes");
              if (axes.size() != 1 || !node.attributes.flag("keep")) return -1;
              return axes[0] < 0 ? axes[0] + ndim : axes[0];
            };
            const int64_t axis = axis_of(*sum);
            if (axis < 0 || axis_of(*largest) != axis) return {};
            return {b.emit("softmax", {b.var(now[x])}, {{"axis", axis}})};
          }};
}

}  // namespace epl
