#include "core/strategy/linear.h"

#include <algorithm>

#include "core/ir/op.h"

namespace epl {
namespace {

// f(a + b) = f(a) + f(b), of all operands together: sums and differences of them, and multiples by constants.
bool is_linear(const ScalarExpr& e) {
  enum class Kind : uint8_t { constant, linear, other };
  std::vector<Kind> kinds;
  const auto made_of = [&](const ScalarExpr::Instruction& i) {
    if (i.op == ScalarOp::input) return Kind::linear;
    if (i.op == ScalarOp::constant) return Kind::constant;
    const Kind a = kinds[i.a], b = i.b < 0 ? Kind::constant : kinds[i.b];
    if (i.op == ScalarOp::neg) return a;
    if (i.op == ScalarOp::add || i.op == ScalarOp::sub) return a == b ? a : Kind::other;
    if (i.op == ScalarOp::mul && a == Kind::constant) return b;
    return (i.op == ScalarOp::mul || i.op == ScalarOp::div) && b == Kind::constant ? a : Kind::other;
  };
  for (const ScalarExpr::Instruction& i : e.code) kinds.push_back(made_of(i));
  return std::ranges::all_of(e.outputs, [&](int o) { return kinds[o] == Kind::linear; });
}

}  // namespace

bool adds_and_moves(const Graph& graph, const Node& node) {
  if (node.outputs.size() != 1 || node.inputs.empty() || !is_float(graph.type(node.outputs[0]).dtype)) return false;
  std::vector<const TensorType*> inputs;
  int64_t bytes = 0;
  for (Value v : node.inputs) {
    if (!v) return false;
    inputs.push_back(&graph.type(v));
    bytes += graph.type(v).bytes();
  }
  const OpQuery query(*node.op, node.attributes, inputs, {&graph.type(node.outputs[0])});
  if (node.op->elementwise()) return is_linear(scalar_expression(query));
  const bool moves = node.op->view || node.op->moves == Moves::all;
  return moves && inputs.size() == 1 && graph.type(node.outputs[0]).bytes() == bytes;
}

}  // namespace epl
