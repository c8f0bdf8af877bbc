// What the split pass knows of nodes before it cuts any: how much work they are, and who uses what.
#pragma once

#include <vector>

#include "core/backend/cost_model.h"
#include "core/strategy/plan.h"

namespace epl {

// A dimension is `outer` times a run of `granules` granules.
struct DimRuns {
  int64_t outer = 1, granules = 1;
};

class SplitNodes {
 public:
  // `windows`: nodes whose windows slide are work, however little it is.
  SplitNodes(const Plan& plan, const CostModel& cost, bool windows);

  const ExtendedRule& rule(NodeId n) const { return rules_->extended[n]; }
  // Seconds of computing on one rank, 0 where it is no product: such a node is cut only if an operand is.
  double work(NodeId n) const { return work_[n]; }
  const std::vector<NodeId>& users(Value v) const { return users_[v]; }
  // How a dimension is divided by the nodes that take it apart: [3 * heads * width] can be cut inside each third, and
  // where the ranks do not divide the heads, into shards of full heads. `ahead`: how many nodes behind one another are
  // looked at.
  std::vector<DimRuns> runs_of_uses(Value v, int dim, int ahead) const;
  // Calls f(factor, runs) for all runs of the dimensions of a node's results that are one factor, if `may(factor)`.
  template <class May, class F> void runs_of_results(NodeId n, int ahead, const May& may, const F& f) const {
    const Node& node = graph_->node(n);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const ShardingRule::Operand& dims = rule(n).rule.outputs[o];
      for (size_t d = 0; d < dims.size(); ++d) {
        if (dims[d].size() != 1 || !may(dims[d][0])) continue;
        for (const DimRuns& runs : runs_of_uses(node.outputs[o], static_cast<int>(d), ahead)) f(dims[d][0], runs);
      }
    }
  }

 private:
  std::shared_ptr<const Graph> graph_;
  std::shared_ptr<const NodeRules> rules_;
  ByValue<std::vector<NodeId>> users_;
  ByNode<double> work_;
};

}  // namespace epl
