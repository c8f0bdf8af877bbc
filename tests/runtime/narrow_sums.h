// Nodes that add up numbers of 16 bits: sums over samples, micro-batches and ranks, and products. Which nodes add up
// follows from the records of their ops, so a new op is held as well.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/base/narrow.h"
#include "core/ir/op.h"
#include "core/program/local_graph.h"
#include "core/strategy/batch_cut.h"

namespace epl {

// A transfer says so. Of other ops the sharding rule knows which factors a result has no longer.
inline bool adds_up(const Graph& graph, const Node& node, size_t output) {
  const OpDef& op = *node.op;
  if (op.boundary) return op.adds;
  if (!op.narrow_inputs.empty()) return true;
  if (op.moves != Moves::none && op.moves != Moves::converted) return false;
  const auto rule = node_rule(graph, node);
  if (!rule.ok() || output >= rule->outputs.size()) return false;
  std::set<int> kept;
  for (const ShardingRule::Dim& dim : rule->outputs[output]) kept.insert(dim.begin(), dim.end());
  for (const ShardingRule::Operand& input : rule->inputs) {
    for (const ShardingRule::Dim& dim : input) {
      for (const int f : dim) {
        if (!kept.contains(f) && rule->factors[static_cast<size_t>(f)].reduce == ShardingRule::Reduce::sum) return true;
      }
    }
  }
  return false;
}

struct FoundSums {
  int all = 0;
  std::vector<std::string> narrow;
};

inline FoundSums find_sums(const LocalGraph& local) {
  FoundSums found;
  for (const Node& node : local.graph.nodes()) {
    for (size_t output = 0; output < node.outputs.size(); ++output) {
      const Value v = node.outputs[output];
      if (!v || !adds_up(local.graph, node, output)) continue;
      ++found.all;
      if (has_16_bits(local.graph.type(v).dtype)) found.narrow.push_back(cat(node.name, " (", node.op->name, ")"));
    }
  }
  return found;
}

inline std::vector<std::string> narrow_sums(const LocalGraph& local) { return find_sums(local).narrow; }

}  // namespace epl
