// Work under a sharding: flops shrink with every factor that is cut, and bytes as the operands do.
#include "core/strategy/node_cost.h"

#include <algorithm>

#include "core/ir/op.h"

namespace epl {

Work work_of(const Graph& graph, const Node& node) {
  Work work;
  std::vector<const TensorType*> inputs, outputs;
  const auto add = [&](Value v, std::vector<const TensorType*>& types, double& elements) {
    types.push_back(v ? &graph.type(v) : nullptr);
    if (!v) return;
    elements += static_cast<double>(graph.type(v).elements());
    work.bytes += static_cast<double>(graph.type(v).bytes());
  };
  for (Value v : node.inputs) add(v, inputs, work.operands);
  for (Value v : node.outputs) add(v, outputs, work.results);
  if (!inputs.empty() && inputs.front()) work.dtype = inputs.front()->dtype;
  work.flops = op_flops(OpQuery(*node.op, node.attributes, inputs, outputs));
  return work;
}

namespace {

double local_elements(const Mesh& mesh, const Shape& shape, const std::vector<Cuts>& dims) {
  double elements = 1;
  for (size_t d = 0; d < shape.size(); ++d)
    elements *= static_cast<double>(d < dims.size() ? mesh.local_size(shape[d], dims[d]) : shape[d]);
  return elements;
}

}  // namespace

double local_bytes(const Plan& plan, int task_graph, const TensorType& type, const Sharding& sharding) {
  return local_elements(plan.mesh(task_graph), type.shape, sharding.dims) *
         static_cast<double>(dtype_bytes(type.dtype));
}

Work work_of(const Plan& plan, NodeId n, NodeSharding sharding) {
  const Graph& graph = *plan.graph;
  const Node& node = graph.node(n);
  const int at = std::max(plan.node_task_graph[n], 0);
  const Mesh& mesh = plan.mesh(at);
  const ExtendedRule& extended = plan.rule(n);
  Work work = work_of(graph, node);
  if (!sharding.factors.empty()) sharding.factors.resize(extended.rule.factors.size());
  for (size_t f = 0; f < sharding.factors.size(); ++f) {
    const auto size = static_cast<double>(extended.rule.factors[f].size);
    if (!sharding.factors[f].empty() && size > 0)
      work.flops *= static_cast<double>(mesh.local_size(extended.rule.factors[f].size, sharding.factors[f])) / size;
  }
  const OperandShardings operands = operand_shardings(extended, sharding);
  work.bytes = work.operands = work.results = 0;
  const auto add = [&](Value v, const Sharding& lies, double& elements) {
    if (!v) return;
    const TensorType& type = graph.type(v);
    const double here = local_elements(mesh, type.shape, lies.dims);
    elements += here;
    work.bytes += here * static_cast<double>(dtype_bytes(type.dtype));
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) add(node.inputs[i], operands.inputs[i], work.operands);
  for (size_t o = 0; o < node.outputs.size(); ++o) add(node.outputs[o], operands.outputs[o], work.results);
  return work;
}

double node_seconds(const CostModel& cost, const Plan& plan, NodeId n, const NodeSharding& sharding) {
  return plan.graph->node(n).op->view ? 0 : cost.kernel(work_of(plan, n, sharding));
}

RankGroup rank_group(const Plan& plan, int task_graph, const std::vector<int>& axes) {
  const Mesh& mesh = plan.mesh(task_graph);
  const std::vector<int>& ranks = mesh.device.ranks;
  RankGroup group{.size = mesh.shards(axes)};
  if (ranks.empty()) return group;
  // The coordinates of the others are those of the first rank.
  const MeshCoordinates first = mesh.coordinates(ranks.front());
  MeshCoordinates last = first;
  for (const int axis : axes) {
    if (mesh.axes[axis].kind == MeshAxis::Kind::rank) last.at[axis] = mesh.axes[axis].size - 1;
  }
  group.first = ranks.front();
  group.last = mesh.rank_at(last);
  return group;
}

}  // namespace epl
