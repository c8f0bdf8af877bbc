// Layer norm and RMS norm out of arithmetic. The core is found first, then scale and bias are merged into it. So every
// way of writing one part combines with every way of writing the others.
#include "core/rewrite/patterns.h"

namespace epl {
using namespace rewrite;

namespace {

using Emitted = std::vector<Var>;

// value = x - mean(x).
std::optional<Mean> centred(const Match& m, Value value) {
  const Node* difference = m.producer(value, "sub");
  if (!difference) return std::nullopt;
  auto mean = mean_of(m, difference->inputs[1]);
  if (!mean || mean->x != difference->inputs[0]) return std::nullopt;
  return mean;
}

// value / deviation with value centred, or not: the norm that this is.
Emitted normalized(const Match& m, Builder& b, const GraphRewriter& now, Value value,
                   const std::optional<Deviation>& by) {
  if (!by) return {};
  const auto mean_square = mean_of(m, by->mean_square);
  if (!mean_square) return {};
  const auto squared = square_of(m, mean_square->x);
  if (!squared) return {};
  const Attributes attributes = {{"axis", int64_t{mean_square->axis}}, {"epsilon", by->epsilon}};
  if (const auto over = centred(m, value)) {
    // The deviation may have been taken from a second copy of the centred values.
    const auto again = centred(m, *squared);
    if (again && again->x == over->x && again->axis == over->axis && over->axis == mean_square->axis) {
      return {b.emit("layer_norm", {b.var(now[over->x])}, attributes)};
    }
  }
  if (*squared == value && !centred(m, value)) return {b.emit("rms_norm", {b.var(now[value])}, attributes)};
  return {};
}

// norm * scale or norm + bias, of the shape that is normalised, merged in as operand `slot` of the norm.
Emitted draw_in(const Match& m, Builder& b, const GraphRewriter& now, std::string_view op, size_t slot) {
  for (int which : {0, 1}) {
    const auto [y, parameter] = operands(m.root(), which);
    const Node* norm = m.producer(y, op);
    if (!norm || !m.used_once(y) || (norm->inputs.size() > slot && norm->inputs[slot])) continue;
    const TensorType& x = m.type(norm->inputs[0]);
    const int axis = OpQuery(*norm->op, norm->attributes, {}).axis("axis", x.ndim());
    if (m.type(parameter).shape != Shape(x.shape.begin() + axis, x.shape.end())) continue;
    // A bias goes in last: nothing may scale it.
    if (slot == 1 && norm->inputs.size() > 2 && norm->inputs[2]) continue;
    std::vector<Var> inputs;
    for (Value input : norm->inputs) inputs.push_back(input ? b.var(now[input]) : Var());
    inputs.resize(std::max(inputs.size(), slot + 1));
    inputs[slot] = b.var(now[parameter]);
    return {b.emit(op, inputs, norm->attributes)};
  }
  return {};
}

}  // namespace

EPL_REWRITE(norm_by_quotient) {
  return {.doc = "(x - mean) / sqrt(variance + epsilon) is a layer norm, x / sqrt(mean(x^2) + epsilon) an RMS norm.",
          .root_op = "div",
          .after = {"attention"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> Emitted {
            return normalized(m, b, now, m.root().inputs[0], deviation(m, m.root().inputs[1]));
          }};
}

EPL_REWRITE(norm_by_product) {
  return {.doc = "The same, written as a product with the reciprocal.",
          .root_op = "mul",
          .after = {"attention"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> Emitted {
            for (int which : {0, 1}) {
              const auto [x, inverse] = operands(m.root(), which);
              Emitted made = normalized(m, b, now, x, inverse_deviation(m, inverse));
              if (!made.empty()) return made;
            }
            return {};
          }};
}

EPL_REWRITE(layer_norm_scale) {
  return {.doc = "layer_norm(x) * scale.",
          .root_op = "mul",
          .after = {"norm_by_quotient", "norm_by_product"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) {
            return draw_in(m, b, now, "layer_norm", 1);
          }};
}

EPL_REWRITE(layer_norm_bias) {
  return {.doc = "layer_norm(x, scale?) + bias.",
          .root_op = "add",
          .after = {"layer_norm_scale"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) {
            return draw_in(m, b, now, "layer_norm", 2);
          }};
}

EPL_REWRITE(rms_norm_scale) {
  return {
      .doc = "rms_norm(x) * scale.",
      .root_op = "mul",
      .after = {"norm_by_quotient", "norm_by_product"},
      .apply = [](const Match& m, Builder& b, const GraphRewriter& now) { return draw_in(m, b, now, "rms_norm", 1); }};
}

}  // namespace epl
