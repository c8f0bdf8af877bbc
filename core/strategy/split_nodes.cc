#include "core/strategy/split_nodes.h"

#include <algorithm>

#include "core/ir/op.h"
#include "core/strategy/batch_cut.h"

namespace epl {
namespace {

// Floating-point operations for each element of a result, and of the operands, from which on a node is cut though no
// operand is.
constexpr double much_work = 8, much_reading = 2;

}  // namespace

SplitNodes::SplitNodes(const Plan& plan, bool windows)
    : graph_(plan.graph), rules_(plan.rules), users_(plan.graph->users()) {
  const Graph& graph = *graph_;
  for (const NodeId n : graph.node_ids()) {
    const Node& node = graph.node(n);
    std::vector<const TensorType*> inputs, outputs;
    double operands = 0, results = 0;
    for (Value v : node.inputs) {
      inputs.push_back(v ? &graph.type(v) : nullptr);
      if (v) operands += static_cast<double>(graph.type(v).elements());
    }
    for (Value v : node.outputs) {
      outputs.push_back(&graph.type(v));
      results += static_cast<double>(graph.type(v).elements());
    }
    const double flops = op_flops(OpQuery(*node.op, node.attributes, inputs, outputs));
    const bool little = flops <= much_work * results || flops < much_reading * operands;
    work_.push_back(little && !(windows && rule(n).slides()) ? 0 : flops);
  }
}

std::vector<DimRuns> SplitNodes::runs_of_uses(Value v, int dim, int ahead) const {
  std::vector<DimRuns> found;
  if (ahead == 0) return found;
  for (const NodeId user : users(v)) {
    const Node& node = graph_->node(user);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != v) continue;
      const ShardingRule& known = rule(user).rule;
      const ShardingRule::Dim& factors = known.inputs[i][dim];
      int64_t before = 1;
      for (size_t f = 0; f < factors.size() && factors.size() > 1; ++f) {
        const int64_t size = known.factors[factors[f]].size;
        found.push_back({before, size});
        before *= size;
      }
      if (factors.size() != 1 || work(user) > 0) continue;
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        const auto& dims = known.outputs[o];
        const auto same = std::ranges::find(dims, factors);
        if (same == dims.end()) continue;
        const auto further = runs_of_uses(node.outputs[o], static_cast<int>(same - dims.begin()), ahead - 1);
        found.insert(found.end(), further.begin(), further.end());
      }
    }
  }
  return found;
}

}  // namespace epl
