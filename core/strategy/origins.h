// What the dimensions of values come of, for passes that cut them: of the model's inputs, or of weights.
#pragma once

#include <vector>

#include "core/ir/graph.h"
#include "core/ir/sharding_rule.h"

namespace epl {

class Origins {
 public:
  // Of a dimension or factor.
  struct Origin {
    bool inputs = false, weights = false;
    bool cut() const { return weights && !inputs; }  // whether a cut may begin here
  };

  explicit Origins(const Graph& graph);
  // The nodes one after another, in the order of the graph.
  void visit(const Node& node, const ShardingRule& rule);

  // Of the node visited last.
  const Origin& factor(int f) const { return of_factor_[f]; }
  // It is state, or a forward node makes it of state alone.
  bool is_weight(Value v) const { return is_weight_[v]; }
  bool depends_on_weights(Value v) const { return depends_on_weights_[v]; }

 private:
  bool of_inputs_at(const Node& node, size_t d, size_t ndim) const;

  const Graph& graph_;
  ByValue<std::vector<bool>> of_inputs_, of_weights_;  // by dimension
  ByValue<bool> is_weight_, depends_on_weights_;
  std::vector<Origin> of_factor_;
};

// Whether there is one of a node's products for each index of the factor: weights and results have one, and so has
// every other operand, or the same for all.
bool counts_experts(const Origins& origins, const Node& node, const ShardingRule& rule, int factor);

}  // namespace epl
