#include "core/strategy/plan.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/strategy/batch_cut.h"

namespace epl {

std::string_view block_name(BlockKind kind) {
  switch (kind) {
    case BlockKind::once:
      return "once";
    case BlockKind::pre:
      return "pre";
    case BlockKind::mid:
      return "mid";
    case BlockKind::main:
      return "main";
    case BlockKind::post:
      return "post";
  }
  return "?";
}

bool block_loops(BlockKind kind) { return kind == BlockKind::pre || kind == BlockKind::main; }

Result<OperandShardings> operand_shardings(const Plan& plan, NodeId id) {
  const Graph& graph = *plan.graph;
  const Node& node = graph.node(id);
  const NodeSharding& sharding = plan.node_shardings[static_cast<size_t>(id.index)];
  if (!sharding.cut()) {  // most nodes of an optimizer: no rule is asked for
    OperandShardings whole;
    for (Value v : node.inputs)
      whole.inputs.push_back({.dims = std::vector<AxisCut>(v ? graph.type(v).shape.size() : 0)});
    for (Value v : node.outputs) whole.outputs.push_back({.dims = std::vector<AxisCut>(graph.type(v).shape.size())});
    whole.sum_outers.assign(node.outputs.size(), 1);
    return whole;
  }
  EPL_ASSIGN(const ShardingRule rule, node_rule(graph, node));
  if (sharding.factors.size() != rule.factors.size()) {
    return invalid("node ", node.name, " has ", rule.factors.size(), " factors, its sharding ",
                   sharding.factors.size());
  }
  return operand_shardings(rule, sharding);
}

Status verify_plan(const Plan& plan) {
  const Graph& graph = *plan.graph;
  if (!plan.shardings.empty() && static_cast<int>(plan.shardings.size()) != graph.value_count()) {
    return error(Code::internal, "shardings of ", plan.shardings.size(), " of ", graph.value_count(), " values");
  }
  for (size_t i = 0; i < plan.shardings.size(); ++i) {
    const ValueInfo& info = graph.value(Value{static_cast<int>(i)});
    const Sharding& sharding = plan.shardings[i];
    if (sharding.dims.size() != info.type.shape.size())
      return error(Code::internal, info.name, " has another number of dimensions");
    for (size_t d = 0; d < sharding.dims.size(); ++d) {
      int64_t pieces = sharding.dims[d].outer;
      for (int axis : sharding.dims[d].axes) pieces *= plan.mesh.axes[static_cast<size_t>(axis)].size;
      if (info.type.shape[d] % pieces != 0) {
        return error(Code::internal, info.name, ": dimension ", d, " of ", info.type.shape[d], " is cut into ", pieces);
      }
    }
  }
  auto sized = [&](size_t size) { return size == 0 || static_cast<int>(size) == graph.node_count(); };
  if (!sized(plan.node_block.size()) || !sized(plan.node_shardings.size()) || !sized(plan.node_task_graph.size())) {
    return error(Code::internal, "a table by node has the wrong size");
  }
  return {};
}

}  // namespace epl
