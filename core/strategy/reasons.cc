#include "core/strategy/reasons.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/base/seconds_text.h"
#include "core/base/text.h"
#include "core/ir/op.h"

namespace epl {
namespace {

constexpr size_t max_in_reason = 4;

}  // namespace

std::string takes_text(double seconds, double instead_of) {
  return cat(seconds > 0 ? cat("takes ", seconds_text(seconds)) : "takes nothing", " instead of ",
             seconds_text(instead_of), " more than a share of the work",
             seconds > instead_of ? ", as the strategy asks for a split" : "");
}

std::string dimension_text(const Graph& graph, NodeId n, const ShardingRule& rule, int factor) {
  const Node& node = graph.node(n);
  const auto dim_in = [&](const ShardingRule::Operand& operand) {
    for (size_t d = 0; d < operand.size(); ++d) {
      if (std::ranges::find(operand[d], factor) != operand[d].end()) return static_cast<int>(d);
    }
    return -1;
  };
  const int result = dim_in(rule.outputs[0]), last = graph.type(node.outputs[0]).ndim() - 1;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i] || graph.value(node.inputs[i]).kind != ValueKind::parameter) continue;
    const int dim = dim_in(rule.inputs[i]);
    if (dim < 0) continue;
    if (graph.type(node.inputs[i]).ndim() > 2) return cat("dimension ", dim, " of ", graph.value(node.inputs[i]).name);
    return result == last ? "columns" : "rows";
  }
  return result < 0 ? std::string("what it sums over") : cat("dimension ", result, " of its result");
}

void Reasons::add(NodeId node, std::string sentence) {
  if (!sentence.empty()) sentences_.emplace_back(node, std::move(sentence));
}

void Reasons::add_replicated(const Node& node, std::string_view why) {
  replicated_[{node.op->name, why}].push_back(node.name);
}

void Reasons::tell(Plan& plan, int64_t ranks) const {
  for (const auto& [node, sentence] : sentences_) plan.explain(node, sentence);
  for (const auto& [of, names] : replicated_) {
    const auto& [op, why] = of;
    const bool one = names.size() == 1, more = names.size() > max_in_reason;
    std::vector<std::string> named = names;
    if (more) named.resize(max_in_reason);
    plan.notes.push_back(cat(one ? "node " : cat(names.size(), " nodes, "), join(named, ", "), more ? ", ..." : "",
                             " (", op, one ? ") is" : "), are", " replicated on each of ", ranks, " ranks: ", why));
  }
}

}  // namespace epl
